"""Labels and scores of plain batches, the short way: one kernel checks them all, others count them.

Preparing rows for a state costs ten microseconds, counting a hundred of them one. Most batches need no preparing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .arrays import ROW_LIMIT
from .columns import Kind, Label, Score

if TYPE_CHECKING:
    from typing_extensions import Self

    from .columns import Batch
    from .intake import Unit

__all__ = ["Shortcut"]


class Pair(NamedTuple):
    """A column of labels and one of scores, each with what it may hold."""

    label: tuple[str, Kind]
    score: tuple[str, Score]


class Step(NamedTuple):
    """How one state counts."""

    unit: Unit
    role: str
    pair: int
    quick: Callable[[Any, Any], bool]


class Shortcut:
    """The quick counters of the states of a collection.

    Parameters
    ----------
    pairs : list of Pair
        What the states read.
    steps : list of Step
        One of every state.
    absent : set of str
        Columns of weights: a batch that has one needs preparing.
    """

    def __init__(self, pairs: list[Pair], steps: list[Step], absent: set[str]) -> None:
        self.pairs, self.steps, self.absent = pairs, steps, absent

    @classmethod
    def of(cls, units: list[Unit]) -> Self | None:
        """Return the shortcut; None if a state has none, or its task selects or changes rows."""
        made = cls([], [], set())
        return made if all(map(made._take, units)) else None

    def _take(self, unit: Unit) -> bool:
        binding, needs = unit.binding, [unit.binding.need(n) for n in unit.needs]
        must = [n for n in needs if not n.optional]
        quick = unit.state.quick() if unit.state.checks_itself else None
        if binding.where or binding.corrects or quick is None or len(must) != 2:
            return False
        label, score = must
        if not isinstance(label.kind, Label) or not isinstance(score.kind, Score):
            return False
        pair = Pair((binding.column(label.role), label.kind), (binding.column(score.role), score.kind))
        if pair not in self.pairs:
            self.pairs.append(pair)
        self.steps.append(Step(unit, score.role, self.pairs.index(pair), quick))
        self.absent |= {binding.column(n.role) for n in needs if n.optional}
        return True

    def count(self, batch: Batch) -> bool:
        """Count a batch in every state; False, and nothing was counted, if it has to go the long way."""
        from .kernels.sums import all_good

        if any(name in batch for name in self.absent):
            return False
        ready = []
        for label, score in self.pairs:
            y, s = batch.column(*label), batch.column(*score)
            plain = s.source in ("float32", "float64") and len(s.values) == len(y.values) > 0
            if not plain or not all_good(y.values, s.values, score[1].scale != "probability"):
                return False
            ready.append((y, s))
        if any(
            unit.state.__dict__["_load"] + len(ready[pair][0].values) >= ROW_LIMIT for unit, _, pair, _ in self.steps
        ):
            return False
        for unit, role, pair, quick in self.steps:
            y, s = ready[pair]
            try:
                counted = quick(y.values, s.values)
            except (TypeError, KeyError, RuntimeError):  # a kernel that is not compiled for this dtype, or just being
                counted = False
            if not counted:
                unit.state.absorb(None, **{"y_true": y, role: s})
            unit.state.__dict__["_load"] += len(s.values)
        return True
