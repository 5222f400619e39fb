"""Metrics for Keras 3 with its TensorFlow, JAX and torch backends.

`KerasMetric` is a metric for `compile`. `Evaluate` is a callback that evaluates a model at the end of each epoch.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.backend import get_keras_mask
from keras.src.trainers.compile_utils import CompileMetrics

from ..batch.convert import as_array
from ..collect.collection import MetricCollection
from ..collect.metric_like import MetricLike, empty_copy
from ..collect.serialization import from_bytes
from .scorer import Scorer, find_directions

__all__ = ["Evaluate", "KerasMetric"]

BACKEND = keras.backend.backend()

if BACKEND == "tensorflow":
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    def call(function: Callable[..., None], arrays: Sequence[Any]) -> None:
        """Call a Python function with the arrays of a step, even in a compiled step; calls run in step order."""
        if tf.executing_eagerly():
            function(*arrays)
            return
        if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            raise ValueError(
                "streammetrics updates metrics in Python, but a step compiled by XLA cannot call Python. Pass "
                "jit_compile=False to model.compile() (on a GPU, Keras uses XLA by default), or evaluate at the end of "
                "each epoch with streammetrics.hooks.keras.Evaluate"
            )
        tf.numpy_function(function, list(arrays), [])

    def read(now: Callable[[], Any], lately: Callable[[], Any], size: int) -> Any:
        """Return the values of the metrics, as `size` floats.

        In a compiled step, the values come from the function `lately` and may be a few steps old. Otherwise, the
        function `now` computes the current values, after all functions passed to `call` have run.
        """
        if tf.executing_eagerly():
            return now()
        found = tf.numpy_function(lately, [], tf.float64)
        found.set_shape((size,))
        return found

    def settle() -> None:
        """Wait for all functions passed to `call`. TensorFlow itself waits for them in each step, so this does nothing."""

elif BACKEND == "jax":
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback

    def call(function: Callable[..., None], arrays: Sequence[Any]) -> None:
        """Call a Python function with the arrays of a step, even in a compiled step; calls run in step order."""
        io_callback(function, None, *arrays, ordered=True)

    def read(now: Callable[[], Any], lately: Callable[[], Any], size: int) -> Any:
        """Return the values of the metrics, as `size` floats.

        In a compiled step, the values come from the function `lately` and may be a few steps old. Otherwise, the
        function `now` computes the current values, after all functions passed to `call` have run.
        """
        # While JAX compiles a step, every new array is a tracer, so this condition detects a compiled step.
        if isinstance(jnp.zeros(()), jax.core.Tracer):
            shape = jax.ShapeDtypeStruct((size,), jnp.float32)
            return io_callback(lambda: lately().astype("float32"), shape, ordered=True)
        settle()
        return now()

    def settle() -> None:
        """Wait for all functions passed to `call`, because JAX runs steps asynchronously."""
        jax.effects_barrier()

else:

    def call(function: Callable[..., None], arrays: Sequence[Any]) -> None:
        """Call a function with the arrays of a step, unless they have no data because Keras is building a model."""
        if not any(getattr(a, "is_meta", False) for a in arrays):
            function(*arrays)

    def read(now: Callable[[], Any], lately: Callable[[], Any], size: int) -> Any:
        """Return the floats that `now` returns. The other arguments are for compiled steps, which torch does not have."""
        return now()

    def settle() -> None:
        """Wait for all functions passed to `call`. With torch they have already returned, so this does nothing."""


Rows = tuple[Any, Any, Any]


@keras.saving.register_keras_serializable("streammetrics")
class KerasMetric(keras.metrics.Metric):
    """A Keras metric that computes metrics of this library, for `metrics` and `weighted_metrics` of `compile`.

    It works with the TensorFlow, JAX and torch backends, and also in compiled steps. Keras resets it at the start of
    each epoch and before validation. The attribute `metrics` is the metric object of this library; use it to read
    bounds, for example.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to update in place. A collection shows all its values, and needs only one pass over the rows.
    link : {"identity", "probability", "logit", "log"}
        The scale of the model's output; "logit" for a model without a final activation. The default, "identity", passes
        the output to the metrics unchanged.
    name : str, optional
        The name in logs; by default the metric's name. For a collection it is a prefix of the names of its values. If a
        model has several outputs, the default prefix is the output name ("click_auc", "buy_auc").
    every : int
        In compiled steps (TensorFlow, JAX), the number of steps after which the value shown during an epoch is computed
        again. The value of an epoch always includes all rows. Each computation takes about 1 ms for an AUC.

    Raises
    ------
    ValueError
        The link does not fit the metrics; or the metrics read columns that Keras does not pass, such as `group` (use
        `Evaluate` for them); or TensorFlow compiles the step with XLA, which cannot call Python (``jit_compile=True``,
        or "auto" with a GPU). The first step also raises this error if this object is used twice in `compile`, or if
        two metrics have the same name.

    Notes
    -----
    A process that loads a model with a `KerasMetric` (by `keras.saving.load_model`) must import this module first. Only
    `weighted_metrics` get `sample_weight` and `class_weight`. Masked rows are never counted. A batch with invalid
    values stops training; TensorFlow and JAX wrap the message in an error of their own. With JAX only one device is
    supported, because only then does JAX call Python in step order.

    Examples
    --------
    >>> import keras, streammetrics as sm
    >>> from streammetrics.hooks.keras import KerasMetric
    >>> model = keras.Sequential([keras.layers.Dense(1, "sigmoid")])
    >>> auc, loss = KerasMetric(sm.AUC()), KerasMetric(sm.LogLoss())
    >>> model.compile("adam", "binary_crossentropy", metrics=[auc], weighted_metrics=[loss])
    >>> metric = KerasMetric(sm.AUC(), link="logit")
    >>> metric.update_state([[0], [1], [1]], [[-1.5], [0.5], [2.0]])
    >>> float(metric.result())
    1.0
    """

    def __init__(self, metrics: MetricLike, *, link: str = "identity", name: str | None = None, every: int = 1) -> None:
        self._scorer = Scorer(metrics, link)
        if not self._scorer.names:
            raise ValueError(f"{metrics!r} has no value that is a single number; for several classes, set average=")
        if every < 1:
            raise ValueError(f"every= takes a number of steps, at least 1, not {every!r}")
        self._scorer.compile_kernels()
        own = metrics.name or "metrics"
        super().__init__(name=name or own)
        self._name_prefix = f"{name}_" if name and name != own else ""
        self.every, self._steps, self._recent_values = every, 0, np.zeros(0)
        up = list(find_directions(metrics).values())
        if len(up) == 1 and up[0] is not None:
            # EarlyStopping(mode="auto") reads this attribute to find out whether higher values are better.
            self._direction = "up" if up[0] else "down"

    @property
    def metrics(self) -> MetricLike:
        """The metrics of this library. Reading this attribute waits until all earlier updates have finished."""
        settle()
        return self._scorer.metrics

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Update the metrics with a batch.

        Parameters
        ----------
        y_true : tensor of shape (n,), (n, 1) or (n, labels)
            The labels.
        y_pred : tensor of shape (n,), (n, 1) or (n, classes)
            The output of the model; masked rows are not counted.
        sample_weight : tensor of shape (n,), optional
            The weights of the rows.
        """
        optional = {"sample_weight": sample_weight, "mask": get_keras_mask(y_pred)}
        present = {name: tensor for name, tensor in optional.items() if tensor is not None}

        def count(*arrays: Any) -> None:
            self._count(*arrays[:2], **dict(zip(present, arrays[2:], strict=True)))

        call(count, [keras.ops.convert_to_tensor(a) for a in (y_true, y_pred, *present.values())])

    def result(self) -> Any:
        """Return the value of the metric; for a collection, a dict from names to values."""
        names = self._find_names(_find_caller(CompileMetrics))
        values = read(self._compute_values, self._read_recent_values, len(self._scorer.names))
        is_collection = isinstance(self._scorer.metrics, MetricCollection)
        return {name: values[i] for i, name in enumerate(names)} if is_collection else values[0]

    def _find_names(self, compiled: Any) -> list[str]:
        """Return the names of the values in logs; `compiled` contains all metrics of the model, or is None.

        Keras puts the values of all metrics into one dict, so if two values had the same name, one of them would be
        lost. This function therefore raises ValueError if a value of a collection has the same name as another value.
        It also raises ValueError if this object is used more than once in `compile`.
        """
        if compiled is None:
            return [self._name_prefix + name for name in self._scorer.names]
        parts = [part for part in (*compiled._flat_metrics, *compiled._flat_weighted_metrics) if part]
        places = [(part.output_name, metric) for part in parts for metric in part.metrics]
        outputs = [output for output, metric in places if metric is self]
        if len(outputs) > 1:
            raise ValueError(
                f"the KerasMetric {self.name!r} is used {len(outputs)} times in compile(), so the rows of all its uses "
                "would be counted together; create a KerasMetric for each use"
            )
        names = _list_shown_names(self, outputs[0] if outputs else None)
        others = {name for output, metric in places if metric is not self for name in _list_shown_names(metric, output)}
        if isinstance(self._scorer.metrics, MetricCollection) and (equal := others.intersection(names)):
            raise ValueError(
                f"two metrics in compile() have the name {min(equal)!r}; pass name= to one KerasMetric, which becomes a "
                "prefix of its names"
            )
        return names

    def reset_state(self) -> None:
        """Reset the metrics."""
        settle()
        self._scorer.metrics.reset()
        self._steps, self._recent_values = 0, np.zeros(0)

    def get_config(self) -> dict[str, Any]:
        """Return the settings from which `from_config` builds an equivalent empty metric; counted rows are left out."""
        data = base64.b64encode(empty_copy(self._scorer.metrics).to_bytes()).decode()
        return {"metrics": data, "link": self._scorer.link, "name": self.name, "every": self.every}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> KerasMetric:
        """Build a metric from the settings that `get_config` returned."""
        return cls(**config | {"metrics": from_bytes(base64.b64decode(config["metrics"]))})

    def _count(self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None) -> None:
        if mask is not None:
            y_true, y_pred, sample_weight = _apply_mask(y_true, y_pred, sample_weight, mask)
        self._scorer.update(y_true, y_pred, sample_weight)
        self._steps += 1

    def _compute_values(self) -> Any:
        return np.array(list(self._scorer.values().values()), np.float64)

    def _read_recent_values(self) -> Any:
        if self._steps % self.every == 0 or not self._recent_values.size:
            self._recent_values = self._compute_values()
        return self._recent_values


class Evaluate(keras.callbacks.Callback):
    """A callback that evaluates the model at the end of each epoch and writes the values to the epoch's logs.

    In `callbacks`, list it before callbacks that use these values, such as EarlyStopping, ModelCheckpoint and
    ReduceLROnPlateau. Those callbacks need `mode="max"` or `mode="min"`.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to update in place. They are reset in each epoch.
    validation_data : (x, y), (x, y, sample_weight), or iterable of such batches; optional
        Arrays, or a data set that `fit` accepts: a `tf.data.Dataset`, `PyDataset` or `DataLoader`. Without it, the
        callback evaluates the rows that your own `train_step` has added to `metrics` during the epoch.
    link : {"identity", "probability", "logit", "log"}
        The scale of the model's output.
    columns : callable, optional
        Takes the `x` of a batch, and returns the other columns that the metrics read. An example is
        ``lambda x: {"group": x["user"]}``.
    output : int or str, optional
        For a model with several outputs, the index or name of the output to evaluate; it also selects the labels.
    batch_size : int
        The number of rows in a batch, if the data are arrays.
    prefix : str
        The prefix for names in the logs, as in "val_auc".

    Raises
    ------
    ValueError
        Raised before training if a callback that monitors the values of this callback is listed before it.

    Examples
    --------
    >>> import keras, numpy as np, streammetrics as sm
    >>> from streammetrics.hooks.keras import Evaluate
    >>> x, y, user = np.random.rand(64, 3), np.arange(64) % 2, np.arange(64) // 8
    >>> model = keras.Sequential([keras.layers.Dense(1, "sigmoid")])
    >>> model.compile("adam", "binary_crossentropy")
    >>> evaluate = Evaluate(sm.MetricCollection(sm.AUC(), sm.Calibration()), (x, y))
    >>> stop = keras.callbacks.EarlyStopping("val_auc", mode="max", patience=2)
    >>> history = model.fit(x, y, epochs=2, verbose=0, callbacks=[evaluate, stop])
    >>> list(history.history)
    ['loss', 'val_auc', 'val_calibration']
    """

    def __init__(
        self,
        metrics: MetricLike,
        validation_data: Any = None,
        *,
        link: str = "identity",
        columns: Callable[[Any], Mapping[str, Any]] | None = None,
        output: int | str | None = None,
        batch_size: int = 1024,
        prefix: str = "val_",
    ) -> None:
        super().__init__()
        self._scorer = Scorer(metrics, link, None if columns is not None or validation_data is None else ())
        self._scorer.compile_kernels()
        self.metrics, self.validation_data, self.batch_size = metrics, validation_data, batch_size
        self.columns, self.output, self.prefix = columns, output, prefix

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Raise ValueError if a callback that monitors values of this callback is listed before it."""
        written = {self.prefix + name for name in self._scorer.names}
        for callback in _find_earlier_callbacks(self):
            if getattr(callback, "monitor", None) in written:
                raise ValueError(
                    f"{type(callback).__name__} monitors {callback.monitor}, which Evaluate writes when an epoch ends, "
                    f"but {type(callback).__name__} is listed before Evaluate; put Evaluate first in callbacks=[...]"
                )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reset the metrics."""
        self.metrics.reset()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluate the model, and write the values to the logs."""
        settle()
        if self.validation_data is not None:
            self.metrics.reset()
            batches = 0
            for x, y, weight in _iterate_batches(self.validation_data, self.batch_size):
                self._count(x, y, weight)
                batches += 1
            if not batches:
                raise ValueError(
                    "validation_data= had no batch in this epoch, because a generator can be read only once; pass arrays, "
                    "a tf.data.Dataset, a PyDataset with a length, or another iterable that can be read again"
                )
        if logs is not None:
            logs.update({self.prefix + name: value for name, value in self._scorer.values().items()})

    def _count(self, x: Any, y: Any, weight: Any) -> None:
        predictions = self.model.predict_on_batch(x)
        if self.output is not None:
            y, predictions = y[self.output], predictions[self.output]
        elif isinstance(predictions, (list, tuple, dict)):
            raise ValueError("the model has several outputs; pass output= to choose the output to evaluate")
        self._scorer.update(y, predictions, weight, **(self.columns(x) if self.columns else {}))


def _apply_mask(y_true: Any, y_pred: Any, weight: Any, mask: Any) -> Rows:
    """Return the labels, predictions and weights of the rows (or time steps) that a Keras mask keeps."""
    keep = np.asarray(mask, bool)
    if weight is not None:
        weight = np.asarray(weight)
        weight = np.broadcast_to(weight.reshape(weight.shape + (1,) * (keep.ndim - weight.ndim)), keep.shape)[keep]
    return as_array(y_true, "y_true", y_true.ndim)[keep], as_array(y_pred, "y_pred", y_pred.ndim)[keep], weight


def _iterate_batches(data: Any, size: int) -> Iterator[Rows]:
    """Yield (features, labels, weights) for each batch of a data set; `size` is the batch size for arrays."""
    if isinstance(data, keras.utils.PyDataset):
        batches: Iterable[Any] = (data[i] for i in range(data.num_batches or 0))
    elif isinstance(data, tuple):
        # The weights in the tuple may be None, which cannot be sliced into batches.
        data = tuple(part for part in data if part is not None)
        rows = len(keras.tree.flatten(data[1])[0])
        batches = (keras.tree.map_structure(lambda a, i=i: a[i : i + size], data) for i in range(0, rows, size))
    else:
        batches = data
    for batch in batches:
        yield keras.utils.unpack_x_y_sample_weight(batch)


def _list_shown_names(metric: Any, output: str | None) -> list[str]:
    """Return the names of a metric's values in logs.

    `output` is the name of the model output that the metric reads; None if the model has only one output.
    """
    prefix = f"{output}_" if output else ""
    if not isinstance(metric, KerasMetric) or not isinstance(metric._scorer.metrics, MetricCollection):
        return [prefix + metric.name]
    return [(metric._name_prefix or prefix) + name for name in metric._scorer.names]


def _find_earlier_callbacks(callback: Any) -> list[Any]:
    """Return the callbacks that are listed before this callback in `fit`."""
    caller = _find_caller(keras.callbacks.CallbackList)
    return caller.callbacks[: caller.callbacks.index(callback)] if caller and callback in caller.callbacks else []


def _find_caller(kind: type) -> Any:
    """Return the object of class `kind` whose method called this function, directly or not; None if there is none.

    Keras does not tell a callback which other callbacks exist, or a metric which model output it reads. The Keras
    object that knows this is among the callers, so this function searches the stack frames for it.
    """
    frame: Any = sys._getframe()
    while frame is not None:
        if isinstance(caller := frame.f_locals.get("self"), kind):
            return caller
        frame = frame.f_back
    return None
