"""Models of one log, arms of an experiment, or saved states, one against the other: the verdict, and the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from streammetrics.cli.messages import UsageError, nearest
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import MetricLike
from streammetrics.compose.axis_wrapper import AxisWrapper
from streammetrics.compose.sliced import Sliced
from streammetrics.compose.windowed import Windowed
from streammetrics.inference.compare import compare_all, look_at
from streammetrics.inference.comparison import Comparisons
from streammetrics.inference.interpretation import ComparisonSettings
from streammetrics.inference.scorecard import Scorecard, scorecard
from streammetrics.inference.sentences import sentence
from streammetrics.numerics.keys import shown
from streammetrics.reports.differences import NumberChange, by_key, changes_of_card, changes_of_models, differences
from streammetrics.reports.differences import scorecard as figures
from streammetrics.reports.records import by_slice, contents, pieces, rivals, sharded, windows_in
from streammetrics.reports.tables import share
from streammetrics.reports.text_table import Grid

__all__ = [
    "ComparisonOptions",
    "Versus",
    "check_alike",
    "check_names",
    "in_full",
    "read_margins",
    "read_words",
    "rows_of",
    "versus",
]


@dataclass(frozen=True)
class ComparisonOptions:
    """How sides are compared.

    Parameters
    ----------
    control : str or None
        The side that the others are compared with; of models the first by default.
    primary : str or None
        The metric that decides; the first that says which values are better by default.
    guardrails : dict of str to float
        Metrics that must not become worse by more than a relative margin.
    better : dict of str to str
        Which values are good, "high" or "low", of metrics that do not say it.
    users, planned : float or None
        Users so far, and at the planned end.
    sequential : bool
        Whether intervals hold at all looks together.
    confidence : float
        Of intervals.
    independent : bool
        Whether sides without common shards have no unit in common.
    experiment : bool
        Whether sides are arms, which a scorecard judges; models are, where there are guardrails or users planned.
    """

    control: str | None = None
    primary: str | None = None
    guardrails: Mapping[str, float] = field(default_factory=dict)
    better: Mapping[str, str] = field(default_factory=dict)
    users: float | None = None
    planned: float | None = None
    sequential: bool = False
    confidence: float = 0.95
    independent: bool = False
    experiment: bool = False

    @property
    def judged(self) -> bool:
        """Whether a scorecard says what to do, and not only a sentence which is better."""
        return self.experiment or bool(self.guardrails) or self.planned is not None

    @property
    def names(self) -> list[str]:
        """The metrics that were named."""
        return [*([self.primary] if self.primary else []), *self.guardrails, *self.better]

    def check(self) -> None:
        """Raise UsageError where options contradict one another."""
        if self.sequential and (self.users is None or self.planned is None):
            raise UsageError("--sequential needs --users, those counted so far, and --planned-users, those at the end")
        if self.primary in self.guardrails:
            raise UsageError(f"--guardrail {self.primary}: it is the primary metric, which must be better anyway")


@dataclass(frozen=True)
class Versus:
    """Sides, one of them the control, of all rows or of the same slices.

    Parameters
    ----------
    sides : dict of str to MetricLike
        What was counted, by name.
    control : str
        The side that the others are compared with.
    asked : Asked
        How.
    title : str
        Of which slices; empty for all rows.
    order : dict of tuple to int
        The slices that a table shows, with their rows.
    whole : Versus or None
        Of slices, the same sides of all rows: whose verdict it is.
    """

    sides: Mapping[str, MetricLike]
    control: str
    asked: ComparisonOptions
    title: str = ""
    order: Mapping[tuple[Any, ...], int] = field(default_factory=dict)
    whole: Versus | None = None

    @property
    def treatments(self) -> list[str]:
        """The other sides."""
        return [name for name in self.sides if name != self.control]

    @cached_property
    def found(self) -> dict[str, Comparisons]:
        """What each treatment's comparison with the control says; of slices after Benjamini and Hochberg."""
        asked = self.asked
        look = look_at(asked.sequential, asked.users, asked.planned, asked.confidence)
        settings = ComparisonSettings(asked.confidence, look, adjust="bh" if self.title else None)
        control = self.sides[self.control]
        return {
            name: compare_all(self.sides[name], control, settings, independent=asked.independent)
            for name in self.treatments
        }

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics behind the numbers that are compared."""
        return {r.changes.pair.name: r.changes.pair.metric for found in self.found.values() for r in found.readings}

    @cached_property
    def card(self) -> Scorecard | None:
        """The verdicts on all treatments, if they are judged."""
        asked = self.asked
        if not asked.judged:
            return None
        if self.whole is not None and self.whole.card is not None:
            return replace(self.whole.card, arms=self.sides)
        metrics = self.metrics
        told = [n for n, m in metrics.items() if m.about.best is not None or n in asked.better]
        primary = asked.primary or next((name for name in told if name not in asked.guardrails), None)
        if primary is None and told:
            raise UsageError(
                f"which metric decides? {', '.join(told)} is to hold, not to decide: add one, and --primary"
            )
        if primary is None:
            raise UsageError(
                f"which metric decides? Nothing says which values of {', '.join(metrics)} are better: --primary "
                f"{next(iter(metrics))} --better {next(iter(metrics))}=high"
            )
        return scorecard(
            self.sides,
            control=self.control,
            primary=primary,
            guardrails=asked.guardrails,
            secondary=[n for n in told if n != primary and n not in asked.guardrails],
            better=asked.better,
            planned=asked.planned,
            users=asked.users,
            sequential=asked.sequential,
            confidence=asked.confidence,
            independent=asked.independent,
        )

    @property
    def sentences(self) -> list[str]:
        """What to do, or which is better, one for each treatment."""
        if self.card is not None:
            several = len(self.card.verdicts) > 1
            return [
                (f"{name}: " if several and v.decision == "keep running" else "") + self._by_name(v.sentence, name)
                for name, v in self.card.verdicts.items()
            ]
        return [self._by_name(self._sentence(name, found), name) for name, found in self.found.items()]

    def _by_name(self, text: str, treatment: str) -> str:
        """A text about the first and the second side that calls them by their names."""
        return text.replace("the first side", treatment).replace("the second side", self.control)

    def _sentence(self, name: str, found: Comparisons) -> str:
        told = [n for n, m in self.metrics.items() if m.about.best is not None and n in found]
        primary = self.asked.primary or next(iter([*told, *found]))
        if primary not in found:
            raise nearest("metric to compare", primary, list(found))
        return sentence(found[primary], found.values(), a=name, b=self.control)

    @property
    def exit_code(self) -> int:
        """3 if a guardrail is broken, else 0."""
        return 0 if self.card is None else self.card.exit_code

    def grids(self) -> list[Grid]:
        """The differences as tables."""
        about = self._share
        if self.title:
            by = next(iter(self.found.values())).by
            return (
                [by_key(self._changes(), by, self.order, f"{self._against}, {self.title}", about)] if self.order else []
            )
        if self.card is not None:
            return [figures(self._changes(), self.control, about)]
        return [differences([c for c in self._changes() if c.treatment == n], self.control, about) for n in self.found]

    def _changes(self) -> list[NumberChange]:
        if self.card is not None:
            made = changes_of_card(self.card.slices("bh") if self.title else self.card.table())
        else:
            made = [one for name, found in self.found.items() for one in changes_of_models(name, found)]
        return [c._replace(reason=c.reason and self._by_name(c.reason, c.treatment)) for c in made]

    @property
    def _against(self) -> str:
        return f"{', '.join(self.treatments)} against {self.control}"

    @property
    def _share(self) -> str:
        confidence = self.asked.confidence
        if self.card is not None and len(self.treatments) > 1:
            confidence = 1.0 - (1.0 - confidence) / len(self.treatments)
        return share(confidence) + (" always" if self.asked.sequential else "")


# -- sides -----------------------------------------------------------------------------------------------------------


def models_of(thing: Any, group: Sequence[str], asked: ComparisonOptions, order: Any = None) -> Versus:
    """Return the models of one log against one another."""
    control = group[0] if asked.control is None else _model(asked.control, group)
    sides = {_short(name, group): thing.task(name) for name in group}
    return Versus(sides, _short(control, group), asked, **_about(thing, order))


def _short(name: str, group: Sequence[str]) -> str:
    """The name of a model without what all of its group begin with."""
    parents = {one.rpartition("/")[0] for one in group}
    return name.rpartition("/")[2] if len(parents) == 1 else name


def _model(given: str, group: Sequence[str]) -> str:
    """The task of this name, in full or without what is before it."""
    return next((one for one in group if given in (one, one.rpartition("/")[2])), group[0])


def arms_of(sliced: Sliced, asked: ComparisonOptions, order: Any = None) -> Versus:
    """Return the arms of an experiment against the control; rows without an arm are in none."""
    sides = {shown(key): sliced[key] for key in sliced.keys if key is not None}
    if asked.control not in sides:  # a boolean may be spelled as programs print it
        named = {shown(arm).lower(): shown(arm) for arm in sliced.keys if isinstance(arm, bool)}
        if (control := named.get(str(asked.control).lower())) is None:
            raise UsageError(
                f"--control {asked.control}: is no arm of {sliced.by[0]}; there are {', '.join(sides) or 'none'}"
            )
        asked = replace(asked, control=control)
    if len(sides) < 2:
        raise UsageError(f"there is one arm of {sliced.by[0]}, {asked.control}, and nothing to compare it with")
    return Versus(sides, str(asked.control), replace(asked, experiment=True), **_about(sliced.total, order))


def _about(thing: Any, order: Any) -> dict[str, Any]:
    """The title of slices, and which of them a table shows."""
    if not isinstance(thing, AxisWrapper):
        return {}
    if isinstance(thing, Windowed):
        return {"title": f"by {thing.width} of {thing.time}", "order": order(thing)}
    return {"title": f"by {', '.join(definition_of(thing).levels)}", "order": order(thing)}


def rows_of(piece: AxisWrapper, top: int | None = None, **shown_how: Any) -> dict[tuple[Any, ...], int]:
    """Return the slices that a table shows, in its order, with their rows."""
    rows: dict[tuple[Any, ...], int] = {}
    for record in by_slice(piece, top, **shown_how):
        if not record["other"]:
            rows.setdefault(tuple(record["slice"].values()), record["rows"] or 0)
    return rows


def check_alike(sides: Mapping[str, Any], asked: ComparisonOptions) -> None:
    """Raise where sides have not the same shards of units, and are not said to be independent."""
    control = str(asked.control)
    ours, held = sharded(sides[control]), contents(sides[control])
    for name, side in sides.items():
        if name == control:
            continue
        if not held.keys() & contents(side).keys():
            raise UsageError(
                f"there is nothing to compare: {control} has {', '.join(held)}; {name} has {', '.join(contents(side))}"
            )
        theirs = sharded(side)
        if asked.independent or (ours and theirs and (ours.unit, ours.shards) == (theirs.unit, theirs.shards)):
            continue
        units, cure = f"{control} and {name} have no shards of units", "--unit user_id"
        if known := ours or theirs:
            units = " and ".join(f"{n} has {_plan(s)}" for n, s in ((control, ours), (name, theirs)))
            cure = f"--unit {known.unit} --shards {known.shards}"
        raise UsageError(
            f"{units}, so that what they share cannot be told from what differs: count both with {cure}; or, if no unit "
            f"is in both, say --independent"
        )


def _plan(found: Any) -> str:
    return "no shards of units" if found is None else f"{found.shards} shards of {found.unit}"


def versus(
    thing: Any, asked: ComparisonOptions, arm: str | None = None, top: int | None = None, **shown_how: Any
) -> list[Versus]:
    """Return what can be compared in what one pass has made: of all rows, then by slice and window.

    Parameters
    ----------
    thing : MetricCollection, Sharded or Bundle
        What was counted.
    asked : Asked
        How sides are compared.
    arm : str, optional
        The column of arms: the sides are then arms, else models.
    top, **shown_how
        Which slices tables show: as for `by_slice`.
    """
    order = partial(rows_of, top=top, **shown_how)
    found = [piece for _, piece in pieces(thing)]
    if arm is not None:
        made = []
        for sliced in (p for p in found if isinstance(p, Sliced) and p.by == (arm,)):
            within = windows_in(sliced)
            made.append(arms_of(sliced if within is None else sliced.across(within.time), asked, order))
            if isinstance(sliced.inner, Windowed):
                made.append(arms_of(sliced, asked, order))
        return [made[0], *(replace(one, whole=made[0]) for one in made[1:])]
    made = []
    for piece in found:
        within = windows_in(piece) if isinstance(piece, AxisWrapper) else None
        plain = piece.across(within.time) if isinstance(piece, AxisWrapper) and within is not None else piece
        made += [models_of(plain, group, asked, order) for group in rivals(piece)]
    whole = [one for one in made if not one.title]
    of = {tuple(one.sides): one for one in whole}
    return [*whole, *(replace(one, whole=of.get(tuple(one.sides))) for one in made if one.title)]


# -- what was asked --------------------------------------------------------------------------------------------------


def read_margins(given: Iterable[str]) -> dict[str, float]:
    """Read `calibration=0.02`."""
    found = {}
    for one in given:
        name, _, margin = one.rpartition("=")  # a name may have one, too: log_loss:eps=1e-6
        try:
            found[name.strip()] = float(margin)
        except ValueError:
            raise UsageError(
                f"--guardrail {one}: give the metric and by how much it may become worse, such as calibration=0.02 for 2 %"
            ) from None
        if not 0.0 <= found[name.strip()] < 1e6:
            raise UsageError(f"--guardrail {one}: a margin is 0 or more, such as 0.02 for 2 %")
    return found


def read_words(given: Iterable[str]) -> dict[str, str]:
    """Read `ctr=high`."""
    found = {}
    for one in given:
        name, _, word = one.rpartition("=")
        if word not in ("high", "low"):
            raise UsageError(f"--better {one}: give the metric and which of its values are good, such as ctr=high")
        found[name.strip()] = word
    return found


def in_full(asked: ComparisonOptions, known: Iterable[str]) -> ComparisonOptions:
    """Return what is asked with the full names of metrics, where only one ends so."""

    def full(name: str) -> str:
        ends = [one for one in known if one.rpartition("/")[2] == name]
        return ends[0] if name not in known and len(ends) == 1 else name

    return replace(
        asked,
        primary=full(asked.primary) if asked.primary else None,
        guardrails={full(name): margin for name, margin in asked.guardrails.items()},
        better={full(name): word for name, word in asked.better.items()},
    )


def check_names(asked: ComparisonOptions, known: Mapping[str, Any], where: str = "") -> None:
    """Raise where a metric that was named is not there, or nothing says which of its values are better."""
    for name in asked.names:
        if name not in known:
            raise nearest(f"metric in {where}:" if where else "metric", name, list(known))
    for name in asked.better:
        if (best := known[name].about.best) is not None:
            raise UsageError(
                f"--better {name}: its best value is known, {best}; this is for metrics that do not say it"
            )
    for option, names in (
        ("--primary", [asked.primary] if asked.primary else []),
        ("--guardrail", list(asked.guardrails)),
    ):
        for name in names:
            if (
                known[name].about.best is None
                and name not in asked.better
                and (asked.judged or option == "--guardrail")
            ):
                raise UsageError(
                    f"{option} {name}: nothing says which of its values are better: add --better {name}=high, or low"
                )
