"""Change the states of several updaters together: either all of them change, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ..numerics.signal_safety import run_with_locks, run_without_interrupt
from ..state.block_ends import BlockEnds
from ..state.state import State
from .reads import Read

__all__ = ["StateChange", "apply_changes", "merge_log_parts", "replace_states"]


class LockedStates(Protocol):
    """The attributes of an updater that a change of states needs: its lock, its reads (see `Read`) and its states."""

    lock: Any
    reads: Any

    def _read_states(self) -> tuple[State, ...]: ...


class StateChange(NamedTuple):
    """A change to the states of an updater; the function `how` computes the new states from the current ones."""

    updater: LockedStates
    how: Callable[[tuple[State, ...]], Sequence[State]]


def merge_log_parts(reads: Sequence[Read], ours: Sequence[State], theirs: Sequence[State]) -> list[State]:
    """Merge the states of two parts of a log.

    Raises
    ------
    IncompatibleStateError
        If the last query of one part is the first query of the other part, or if `State.merge` raises this error.
    """
    return [
        a.merge(b).with_block_ends(BlockEnds.join([a.block_ends, b.block_ends], read.block_column))
        for read, a, b in zip(reads, ours, theirs, strict=True)
    ]


def apply_changes(changes: Sequence[StateChange]) -> None:
    """Apply changes to different updaters; if one of the changes raises an error, apply none of them.

    All updaters are locked until all changes are applied. Rows that another thread counts are therefore not lost, and
    no thread sees only some of the changes.
    """
    updaters = [one.updater for one in changes]
    _replace_under_locks(updaters, lambda: [tuple(one.how(one.updater._read_states())) for one in changes])


def replace_states(updaters: Sequence[LockedStates], states: Iterable[State]) -> None:
    """Replace the states of several updaters: either all of them or none.

    `states` contains the states of the first updater, followed by those of the second updater, and so on.
    """
    rest = iter(states)
    by_updater = [tuple(islice(rest, len(updater.reads))) for updater in updaters]
    _replace_under_locks(updaters, lambda: by_updater)


def _replace_under_locks(updaters: Sequence[LockedStates], make: Callable[[], Sequence[tuple[State, ...]]]) -> None:
    """Lock all updaters, compute their new states with `make`, and set them."""
    # All threads lock updaters in the same order. Otherwise two threads could wait for each other forever.
    in_order = sorted(updaters, key=id)
    run_with_locks([updater.lock for updater in in_order], lambda: _set_states(updaters, make()))


def _set_states(updaters: Sequence[LockedStates], states: Sequence[tuple[State, ...]]) -> None:
    pairs = zip(updaters, states, strict=True)
    run_without_interrupt(
        [partial(updater.__dict__.__setitem__, "_content", (own_states, None)) for updater, own_states in pairs]
    )
