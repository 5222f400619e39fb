"""JAX: arrays carried from a device without waiting for it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .deferred import CARRIERS, Deferred

__all__ = ["Arrays", "ArraysUnderWay", "Deferred"]


class ArraysUnderWay:
    """Arrays on their way, each on its own: joining them there would be compiled anew for every number of steps."""

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        self._arrays = arrays
        for array in arrays:
            array.copy_to_host_async()

    def ready(self) -> bool:
        """Whether they are here, or will never be."""
        return all(a.is_deleted() or a.is_ready() for a in self._arrays)

    def array(self) -> Any:
        """All rows, on the CPU."""
        return np.concatenate([np.asarray(a) for a in self._arrays])


class Arrays:
    """How `Deferred` keeps and carries arrays: nobody can change them, but a function they are donated to ends them."""

    def keep(self, column: jax.Array) -> tuple[jax.Array, None]:
        """The array itself."""
        return column, None

    def snapshot(self, column: jax.Array) -> jax.Array:
        """A copy on its device."""
        return jnp.copy(column)

    def changed(self, column: jax.Array, mark: None) -> str:
        """Whether it is still there."""
        return "was deleted (donated to a jitted function?)" if column.is_deleted() else ""

    def alike(self, column: jax.Array) -> Hashable:
        """Dtype and shape of a row; None for what is no column."""
        return (column.dtype, column.shape[1:]) if column.ndim else None

    def start(self, columns: Sequence[jax.Array]) -> ArraysUnderWay:
        """Send them."""
        return ArraysUnderWay(columns)


CARRIERS["jaxlib"] = Arrays()
