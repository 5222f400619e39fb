"""Keras 3: a metric for `compile`, and a callback that evaluates at the end of an epoch, on its three backends."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.backend import get_keras_mask

from ..batch.convert import as_array
from ..collect.collection import MetricCollection
from ..collect.metric_like import MetricLike, empty_copy
from ..collect.serialization import from_bytes
from .scorer import Scorer, directions

__all__ = ["Evaluate", "KerasMetric"]

BACKEND = keras.backend.backend()

if BACKEND == "tensorflow":
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    def call(function: Callable[..., None], arrays: Sequence[Any]) -> None:
        """Call a function of arrays, once a step, one step after the other."""
        if tf.executing_eagerly():
            function(*arrays)
            return
        if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            raise ValueError(
                "streammetrics counts in Python, which a step that XLA compiles cannot call: say "
                "model.compile(..., jit_compile=False), as the default compiles where there is a GPU; or evaluate at the "
                "end of an epoch with streammetrics.hooks.keras.Evaluate"
            )
        tf.numpy_function(function, list(arrays), [])

    def read(now: Callable[[], Any], lately: Callable[[], Any], size: int) -> Any:
        """Return `size` floats, after all calls so far: of `lately` in a compiled step, else of `now`."""
        if tf.executing_eagerly():
            return now()
        found = tf.numpy_function(lately, [], tf.float64)
        found.set_shape((size,))
        return found

    def settle() -> None:
        """Wait until all calls were made: each step has waited for its own."""

elif BACKEND == "jax":
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback

    def call(function: Callable[..., None], arrays: Sequence[Any]) -> None:
        """Call a function of arrays, once a step, one step after the other."""
        io_callback(function, None, *arrays, ordered=True)

    def read(now: Callable[[], Any], lately: Callable[[], Any], size: int) -> Any:
        """Return `size` floats, after all calls so far: of `lately` in a compiled step, else of `now`."""
        if isinstance(jnp.zeros(()), jax.core.Tracer):  # a step is being compiled
            shape = jax.ShapeDtypeStruct((size,), jnp.float32)
            return io_callback(lambda: lately().astype("float32"), shape, ordered=True)
        settle()
        return now()

    def settle() -> None:
        """Wait until all calls were made: JAX runs steps while Python goes on."""
        jax.effects_barrier()

else:

    def call(function: Callable[..., None], arrays: Sequence[Any]) -> None:
        """Call a function of arrays, unless these have only shapes, as when Keras builds a model."""
        if not any(getattr(a, "is_meta", False) for a in arrays):
            function(*arrays)

    def read(now: Callable[[], Any], lately: Callable[[], Any], size: int) -> Any:
        """Return what `now` returns: nothing is compiled."""
        return now()

    def settle() -> None:
        """Wait until all calls were made: each was made at once."""


Rows = tuple[Any, Any, Any]


@keras.saving.register_keras_serializable("streammetrics")
class KerasMetric(keras.metrics.Metric):
    """A Keras metric of ours, for the `metrics` and `weighted_metrics` of `compile`.

    It counts on the TensorFlow, JAX and torch backends of Keras, also where steps are compiled; Keras resets it at each
    epoch and before validation. What it has counted is in `metrics`, with bounds and all.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What is counted, in this very object. A collection shows all its values, with one pass over the rows.
    link : {"identity", "probability", "logit", "log"}
        What the model puts out; "logit" of a model without an activation at its end. By default the metrics take it as it
        is.
    name : str, optional
        The name in logs, of one metric; by default its own. Values of a collection have the names that they have there,
        behind that name if it is given: a model of two outputs needs one for each ("click_auc", "buy_auc").
    every : int
        How many steps go by between two values shown while an epoch runs, where steps are compiled (TensorFlow, JAX);
        that of an epoch is always of all its rows. A value costs what `compute` costs: about 1 ms for an AUC.

    Raises
    ------
    ValueError
        The link does not fit the metrics, or they read columns that Keras has not, such as `group`: see `Evaluate`. When
        TensorFlow compiles the step with XLA (``jit_compile=True``, or "auto" with a GPU): it cannot call Python.

    Notes
    -----
    Weights reach `weighted_metrics` alone: `sample_weight`, `class_weight`, and rows that a mask leaves out are never
    counted. A bad batch stops training; TensorFlow and JAX wrap the message into an error of their own. JAX calls Python
    in order, so it takes one device.

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
            raise ValueError(f"{metrics!r} has no value that is one number: average= makes one of several")
        if every < 1:
            raise ValueError(f"every is a number of steps, at least 1, not {every!r}")
        own = metrics.name or "metrics"
        super().__init__(name=name or own)
        self._before = f"{name}_" if name and name != own else ""
        self.every, self._steps, self._shown = every, 0, np.zeros(0)
        up = list(directions(metrics).values())
        if len(up) == 1 and up[0] is not None:
            self._direction = "up" if up[0] else "down"  # what EarlyStopping(mode="auto") looks for

    @property
    def metrics(self) -> MetricLike:
        """What has been counted."""
        settle()
        return self._scorer.metrics

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch.

        Parameters
        ----------
        y_true : tensor of shape (n,), (n, 1) or (n, labels)
            Labels.
        y_pred : tensor of shape (n,), (n, 1) or (n, classes)
            What the model puts out. Rows that its mask leaves out are not counted.
        sample_weight : tensor of shape (n,), optional
            Weights.
        """
        given = {"sample_weight": sample_weight, "mask": get_keras_mask(y_pred)}
        there = {name: tensor for name, tensor in given.items() if tensor is not None}

        def count(*arrays: Any) -> None:
            self._count(*arrays[:2], **dict(zip(there, arrays[2:], strict=True)))

        call(count, [keras.ops.convert_to_tensor(a) for a in (y_true, y_pred, *there.values())])

    def result(self) -> Any:
        """Return the value, or of a collection the values by name."""
        names = self._scorer.names
        found = read(self._now, self._lately, len(names))
        several = isinstance(self._scorer.metrics, MetricCollection)
        return {self._before + name: found[i] for i, name in enumerate(names)} if several else found[0]

    def reset_state(self) -> None:
        """Forget every row."""
        settle()
        self._scorer.metrics.reset()
        self._steps, self._shown = 0, np.zeros(0)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this metric again, with no rows."""
        data = base64.b64encode(empty_copy(self._scorer.metrics).to_bytes()).decode()
        return {"metrics": data, "link": self._scorer.link, "name": self.name, "every": self.every}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> KerasMetric:
        """Make the metric that `get_config` described."""
        return cls(**config | {"metrics": from_bytes(base64.b64decode(config["metrics"]))})

    def _count(self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None) -> None:
        if mask is not None:
            y_true, y_pred, sample_weight = _unmasked(y_true, y_pred, sample_weight, mask)
        self._scorer.update(y_true, y_pred, sample_weight)
        self._steps += 1

    def _now(self) -> Any:
        return np.array(list(self._scorer.values().values()), np.float64)

    def _lately(self) -> Any:
        if self._steps % self.every == 0 or not self._shown.size:
            self._shown = self._now()
        return self._shown


class Evaluate(keras.callbacks.Callback):
    """Evaluates at the end of each epoch, and writes the values into its logs.

    It stands before the callbacks that act on these values, EarlyStopping, ModelCheckpoint and ReduceLROnPlateau, which
    take `mode="max"` or `mode="min"`.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What is counted, in this very object, from nothing in each epoch.
    validation_data : (x, y), (x, y, sample_weight), or iterable of such batches; optional
        Arrays, or what `fit` takes: a `tf.data.Dataset`, a `PyDataset`, a `DataLoader`. Without it the values are those of
        what your own `train_step` has counted into `metrics` during the epoch, which is forgotten when the next begins.
    link : {"identity", "probability", "logit", "log"}
        What the model puts out.
    columns : callable, optional
        Makes of the `x` of a batch the further columns that metrics read, by name: ``lambda x: {"group": x["user"]}``.
    output : int or str, optional
        The output of a model with several, and its labels.
    batch_size : int
        Rows at once, of arrays.
    prefix : str
        What stands before the names in logs.

    Raises
    ------
    ValueError
        Before training, when a callback that looks for these values stands before this one: it would never find them.

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
        self.metrics, self.validation_data, self.batch_size = metrics, validation_data, batch_size
        self.columns, self.output, self.prefix = columns, output, prefix

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Raise where a callback that looks for these values comes first."""
        written = {self.prefix + name for name in self._scorer.names}
        for callback in _before(self):
            if getattr(callback, "monitor", None) in written:
                raise ValueError(
                    f"{type(callback).__name__} looks for {callback.monitor}, which Evaluate writes when an epoch ends, "
                    "but stands before it: in callbacks=[...] put Evaluate first"
                )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forget the epoch before."""
        self.metrics.reset()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluate, and write the values into the logs."""
        settle()
        if self.validation_data is not None:
            self.metrics.reset()
            batches = 0
            for x, y, weight in _batches(self.validation_data, self.batch_size):
                self._count(x, y, weight)
                batches += 1
            if not batches:
                raise ValueError(
                    "validation_data= had no batch in this epoch: a generator is read to its end once; give arrays, a "
                    "tf.data.Dataset, a PyDataset that knows its length, or what can be gone through again"
                )
        if logs is not None:
            logs.update({self.prefix + name: value for name, value in self._scorer.values().items()})

    def _count(self, x: Any, y: Any, weight: Any) -> None:
        predictions = self.model.predict_on_batch(x)
        if self.output is not None:
            y, predictions = y[self.output], predictions[self.output]
        elif isinstance(predictions, (list, tuple, dict)):
            raise ValueError("the model has several outputs: output= says which of them to evaluate")
        self._scorer.update(y, predictions, weight, **(self.columns(x) if self.columns else {}))


def _unmasked(y_true: Any, y_pred: Any, weight: Any, mask: Any) -> Rows:
    """The rows that a mask keeps; of sequences, their steps."""
    keep = np.asarray(mask, bool)
    if weight is not None:
        weight = np.asarray(weight)
        weight = np.broadcast_to(weight.reshape(weight.shape + (1,) * (keep.ndim - weight.ndim)), keep.shape)[keep]
    return as_array(y_true, "y_true", y_true.ndim)[keep], as_array(y_pred, "y_pred", y_pred.ndim)[keep], weight


def _batches(data: Any, size: int) -> Iterator[Rows]:
    """Features, labels and weights, batch by batch, however they were given."""
    if isinstance(data, keras.utils.PyDataset):
        batches: Iterable[Any] = (data[i] for i in range(data.num_batches or 0))
    elif isinstance(data, tuple):
        data = tuple(part for part in data if part is not None)  # such as weights
        rows = len(keras.tree.flatten(data[1])[0])
        batches = (keras.tree.map_structure(lambda a, i=i: a[i : i + size], data) for i in range(0, rows, size))
    else:
        batches = data
    for batch in batches:
        yield keras.utils.unpack_x_y_sample_weight(batch)


def _before(callback: Any) -> list[Any]:
    """The callbacks that stand before one: Keras tells none of its neighbours, so it is read from who calls."""
    frame = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            return caller.callbacks[: caller.callbacks.index(callback)] if callback in caller.callbacks else []
        frame = frame.f_back  # type: ignore[assignment]
    return []
