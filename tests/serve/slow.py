"""A decoder with frames that it never ends with, and frames that it dies of; other processes find it here."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from serve.fakes import arms

import streammetrics as sm
from streammetrics.serve.api.decoder import FrameDecoder
from streammetrics.serve.api.frame_decoding import DecodedFrame
from streammetrics.serve.evaluation.experiment import Experiment

__all__ = ["Slow", "frames_with_trouble"]


@cache
def frames_with_trouble() -> dict[str, bytes]:
    """Return the frames that `Slow` has trouble with, by the trouble; "odd" is as endless, and of another plan."""
    found = {name: arms(seed).to_bytes() for seed, name in enumerate(("endless", "deadly", "faulty", "huge"), 7)}
    return found | {"odd": arms(11, metrics=[sm.CTR(), sm.AUC(bits=12)]).to_bytes()}


class Slow(FrameDecoder):
    """Waits for `free` in a frame; dies of another; makes a mistake with a third; has no memory for a fourth."""

    free = threading.Event()

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        # The frames are made here, before a deadline runs: another process would else make them while it decodes.
        self._trouble = frames_with_trouble()

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int
    ) -> list[DecodedFrame]:
        found = super().decode(frames, experiments, max_content)
        trouble = self._trouble
        if {trouble["endless"], trouble["odd"]} & {*frames}:
            self.free.wait(60)
        if trouble["deadly"] in frames:
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble["faulty"] in frames:
            raise RuntimeError("a mistake of ours")
        no_memory = trouble["huge"]
        return [what._replace(error=MemoryError()) if frames[i] == no_memory else what for i, what in enumerate(found)]
