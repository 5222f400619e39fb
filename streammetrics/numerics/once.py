"""Several calls as one, which no signal divides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import call
from typing import Any

__all__ = ["at_once"]


def at_once(steps: Sequence[Callable[[], Any]]) -> None:
    """Take some steps, none of which is Python: handlers of signals run between its instructions, not inside one call."""
    deque(map(call, steps), maxlen=0)
