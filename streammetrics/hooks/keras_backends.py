"""How Python is called from a compiled step: by TensorFlow, by JAX, and by those that compile nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras.src.backend import get_keras_mask

__all__ = ["call", "get_keras_mask", "read", "settle"]

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
