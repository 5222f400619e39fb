"""PyTorch: tensors carried from a GPU without waiting for it, and metrics in a checkpoint."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from .deferred import CARRIERS, Deferred

__all__ = ["Deferred", "Tensors", "TensorsUnderWay"]


class TensorsUnderWay:
    """Tensors on their way from one device, joined there, into pinned memory; on the CPU they are joined, and here.

    The copy is queued behind what the device has still to do, on its current stream. Devices other than CUDA's (ROCm's
    go by that name) have no such copy: from there `start` waits.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            self._there = torch.cat(list(tensors))
            self._arrived: Any = None
            if self._there.is_cuda:
                self._here = torch.empty(self._there.shape, dtype=self._there.dtype, pin_memory=True)
                self._here.copy_(self._there, non_blocking=True)
                self._arrived = torch.cuda.Event()
                self._arrived.record(torch.cuda.current_stream(self._there.device))
            else:
                self._here = self._there.cpu()

    def ready(self) -> bool:
        """Whether they are here."""
        return self._arrived is None or self._arrived.query()

    def array(self) -> torch.Tensor:
        """All rows, on the CPU."""
        return self._here


class Tensors:
    """How `Deferred` keeps and carries tensors."""

    def keep(self, column: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        """The tensor without its graph, and its version; of an inference tensor, which has none, a copy."""
        if column.is_inference():
            return column.clone(), None
        return column.detach() if column.requires_grad else column, column._version

    def snapshot(self, column: torch.Tensor) -> torch.Tensor:
        """A copy on its device."""
        return column.detach().clone()

    def changed(self, column: torch.Tensor, mark: int | None) -> str:
        """Whether it was written to since."""
        return "was changed in place" if mark is not None and column._version != mark else ""

    def alike(self, column: torch.Tensor) -> Hashable:
        """Device, dtype and shape of a row; None for what is no column, which `update` says better."""
        if column.layout is not torch.strided or column.is_nested or not column.ndim:
            return None
        return column.device, column.dtype, column.shape[1:]

    def start(self, columns: Sequence[torch.Tensor]) -> TensorsUnderWay:
        """Join them where they are, and send them."""
        return TensorsUnderWay(columns)


CARRIERS["torch"] = Tensors()
