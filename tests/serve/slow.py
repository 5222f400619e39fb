"""A decoder with frames that it never ends with, and frames that it dies of; other processes find it here."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence

from serve.fakes import arms

import streammetrics as sm
from streammetrics.serve.decode import Decoded
from streammetrics.serve.decoder import Decoder
from streammetrics.serve.experiment import Experiment

__all__ = ["DEADLY", "ENDLESS", "FAULTY", "HUGE", "ODD", "Slow"]

ENDLESS, DEADLY, FAULTY, HUGE = (arms(seed).to_bytes() for seed in (7, 8, 9, 10))
ODD = arms(11, metrics=[sm.CTR(), sm.AUC(bits=12)]).to_bytes()
"""As endless, and of another plan."""


class Slow(Decoder):
    """Waits for `free` in a frame; dies of another; makes a mistake with a third; has no memory for a fourth."""

    free = threading.Event()

    def decode(self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int) -> list[Decoded]:
        found = super().decode(frames, experiments, max_content)
        if {ENDLESS, ODD} & {*frames}:
            self.free.wait(60)
        if DEADLY in frames:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULTY in frames:
            raise RuntimeError("a mistake of ours")
        return [what._replace(error=MemoryError()) if frames[i] == HUGE else what for i, what in enumerate(found)]
