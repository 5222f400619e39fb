"""One verdict of an experiment, the figures behind it, and the same figures slice by slice."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..collect.metric_like import MetricLike
from ..collect.plottable import Plottable
from ..errors import InvalidInputError
from ..reading.interval import Interval, alpha_of
from ..reading.replicates import Sample
from ..reading.table import Table, TableLayout, show
from .calibration import Calibrations
from .compare import samples_of, slices_of
from .differences import RATIO, Changes, changes_of
from .estimates import each
from .interpretation import ComparisonSettings, Interpretation, compared_of, read
from .number_format import digits, p_text
from .pairs import Left, paired
from .reasons import known
from .sample_ratio import SampleRatio, sample_ratio_mismatch
from .sequential import p_of_e
from .verdict import Compared, Progress, Verdict, not_worse, verdict, worse

__all__ = ["Scorecard", "scorecard"]

PRIMARY, GUARDRAIL, SECONDARY = "primary", "guardrail", "secondary"
BREACHED = 3  # the exit code of a program that gates on it
Floats = NDArray[np.float64]


class Question(NamedTuple):
    """What is asked of one metric.

    Parameters
    ----------
    name : str
        Of the number.
    role : str
        "primary", "guardrail" or "secondary".
    better : str
        "high", "low", or "one": which values are good.
    margin : float or None
        Of a guardrail: by how much it may be worse.
    """

    name: str
    role: str
    better: str
    margin: float | None = None


class ScorecardOptions(NamedTuple):
    """How a scorecard is asked for.

    Parameters
    ----------
    questions : tuple of Question
        The metrics: first the primary one, then guardrails, then the rest.
    confidence : float
        Of the whole, over all treatments.
    relative : bool
        Whether changes and margins are relative.
    independent : bool
        Whether arms without common shards are taken to have no unit in common.
    among : int
        How many guardrails there are, where some cannot be asked about yet.
    """

    questions: tuple[Question, ...]
    confidence: float
    relative: bool
    independent: bool
    among: int = 0

    @property
    def guardrails(self) -> int:
        """How many guardrails there are."""
        return [q.role for q in self.questions].count(GUARDRAIL)


@dataclass(frozen=True, eq=False, repr=False)
class Scorecard(Plottable):
    """What to do with each treatment, and why.

    Parameters
    ----------
    arms : mapping
        What was counted, by arm.
    control : key
        The arm that the others are compared with.
    asked : Asked
        The questions.
    progress : mapping
        How far each treatment is.
    ratio : SampleRatio or None
        Whether users fell to arms as planned.
    totals : mapping
        What each arm says of all its slices together.
    """

    arms: Mapping[Any, MetricLike]
    control: Any
    asked: ScorecardOptions
    progress: Mapping[Any, Progress]
    ratio: SampleRatio | None
    totals: Mapping[Any, Sequence[Sample]]

    @cached_property
    def verdicts(self) -> dict[Any, Verdict]:
        """What to do with each treatment: of all slices together."""
        found = {}
        control = self.totals[self.control]
        for arm, progress in self.progress.items():
            changes, _ = self._changes(self.totals[arm], control)
            relative, questions = self.asked.relative, self.asked.questions
            asked = [compared_of(changes[q.name], relative, q.better, q.margin) for q in questions]
            one = [_first(c) for c in asked]
            last = 1 + self.asked.guardrails
            found[arm] = verdict(
                one[0],
                one[1:last],
                progress,
                confidence=self.asked.confidence,
                treatments=len(self.progress),
                treatment=str(arm),
                sample_ratio=self.ratio,
            )
        return found

    @property
    def exit_code(self) -> int:
        """3 if a guardrail of any treatment is breached, else 0: for programs that gate on it.

        Where the arms are not comparable, or one look is for the end, nothing is.
        """
        told = [v for v in self.verdicts.values() if v.decision != "withheld"]
        broken = (r.word == "breached" for v in told for r in v.guardrails)
        return BREACHED if any(broken) else 0

    def __repr__(self) -> str:
        """The verdicts, then the figures."""
        return "\n".join([*(v.sentence for v in self.verdicts.values()), "", repr(self.table())])

    def _repr_html_(self) -> str:
        told = "".join(f"<p><strong>{html.escape(v.sentence)}</strong></p>" for v in self.verdicts.values())
        return told + self.table()._repr_html_()

    def table(self) -> Table:
        """Return the figures of every treatment and metric.

        Columns: `treatment`; `metric`; `role`; `control_value`, `value`; `change`, `low`, `high` (relative, unless asked
        otherwise); `p_value` (of no change), `adjusted`; `p_word` (of what the word says: of a guardrail, that it is
        breached); `word`; `reason`; `relative`; `bound` (by how much the change may be off by what was counted alone);
        `rows` (of both arms).
        """
        return self.tabled((), self.totals, None)

    def slices(self, adjust: str | None = None) -> Table:
        """Return the same by slice.

        Parameters
        ----------
        adjust : {"holm", "bh"}, optional
            Adjust p-values for all rows of a treatment together; what is better, worse or breached must then pass both.
        """
        return self._table(self.arms, adjust)

    def _table(self, arms: Mapping[Any, MetricLike], adjust: str | None) -> Table:
        samples = {arm: samples_of(thing) for arm, thing in arms.items()}
        return self.tabled(slices_of(arms[self.control]), samples, adjust)

    def tabled(self, by: tuple[str, ...], samples: Mapping[Any, Sequence[Sample]], adjust: str | None = None) -> Table:
        """Return the same of other cells of the arms, told apart by some columns."""
        rows: dict[Any, list[dict[str, Any]]] = {}
        for arm, progress in self.progress.items():
            changes, left = self._changes(samples[arm], samples[self.control])
            missing = [(one.key, NOTHING | {"metric": one.name, "reason": one.reason}) for one in left]
            for key, row in [*self._rows(changes, progress, adjust), *missing]:
                rows.setdefault(key, []).append(dict(zip(by, key, strict=False)) | {"treatment": arm} | row)
        return Table(by, [row for some in rows.values() for row in some], FIGURES)

    def _changes(self, treatment: Sequence[Sample], control: Sequence[Sample]) -> tuple[dict[str, Changes], list[Left]]:
        """What changes in each of the metrics asked for, and what only one arm has."""
        names = {q.name for q in self.asked.questions}
        pairs, left = paired([s for s in treatment if s.name in names], [s for s in control if s.name in names])
        found = {p.name: changes_of(p, independent=self.asked.independent) for p in pairs}
        if missing := [q.name for q in self.asked.questions if q.name not in found]:
            there = ", ".join(dict.fromkeys(s.name for s in control))
            raise InvalidInputError(f"there is no metric {missing[0]!r} in both arms; there are {there}")
        return found, left

    def _rows(self, changes: dict[str, Changes], progress: Progress, adjust: str | None) -> Iterable[Any]:
        """The key and the row of each cell and metric."""
        share = 1.0 - alpha_of(self.asked.confidence) / len(self.progress)
        settings = ComparisonSettings(share, progress.look, self.asked.relative, adjust)
        readings = [self._read(q, changes[q.name], settings) for q in self.asked.questions]
        margins = [q.margin or 0.0 if q.role == GUARDRAIL else None for q in self.asked.questions]
        adjusted = settings.adjusted(readings, margins)
        for question, reading, margin, p in zip(self.asked.questions, readings, margins, adjusted, strict=True):
            words = self._words(question, reading, p, progress, settings)
            said = settings.evidence(reading, margin)
            pair, found = reading.changes.pair, reading.relative if self.asked.relative else reading.difference
            columns = (
                pair.b.values.tolist(),
                pair.a.values.tolist(),
                each(found),
                reading.p.tolist(),
                p.tolist(),
                np.asarray(said if progress.look is None else p_of_e(said)).tolist(),
                words,
                _bounds(pair, self.asked.relative).tolist(),
                (pair.a.rows + pair.b.rows).tolist(),
            )
            about = {"metric": question.name, "role": question.role, "relative": self.asked.relative}
            for key, before, after, one, plain, together, own, word, bound, rows in zip(
                pair.keys, *columns, strict=True
            ):
                figures = {
                    "control_value": before,
                    "value": after,
                    "change": one.estimate,
                    "low": one.low,
                    "high": one.high,
                }
                told = {"p_value": plain, "adjusted": together, "p_word": own, "word": word, "reason": one.reason}
                yield key, about | figures | told | {"bound": bound, "rows": rows}

    def _read(self, question: Question, changes: Changes, settings: ComparisonSettings) -> Interpretation:
        """What changes say of a question."""
        asked = compared_of(changes, settings.relative, question.better, question.margin)
        return replace(read(changes, settings), compared=asked)

    def _words(
        self, question: Question, reading: Interpretation, p: Floats, progress: Progress, settings: ComparisonSettings
    ) -> list[str]:
        """What each cell says, as the verdict reads one."""
        guardrail = question.role == GUARDRAIL
        good, bad, neither = ("held", "breached", "undecided") if guardrail else ("better", "worse", "unclear")
        compared = reading.compared
        alpha, margin = alpha_of(settings.confidence), question.margin or 0.0
        shown = settings.adjust is None or p <= alpha
        among = max(self.asked.guardrails, self.asked.among) if guardrail else 1
        breached = worse(compared, progress, alpha / among, margin) & shown
        held = not_worse(compared, progress, alpha, margin) & (guardrail or shown)
        out = np.full(p.shape, neither, object)
        if not progress.early:  # the interval of one look is for the end
            out[held], out[breached] = good, bad
        out[np.isnan(reading.p) | known(reading.changes.reasons)] = "too few"
        found: list[str] = out.tolist()
        return found


def _bounds(pair: Any, relative: bool) -> Floats:
    """By how much a change may be off by what was counted alone."""
    half = 0.5 * ((pair.a.high - pair.a.low) + (pair.b.high - pair.b.low))
    if not relative:
        return np.asarray(half)
    with np.errstate(all="ignore"):  # of a control of 0
        return np.asarray(half / np.abs(pair.b.values))


def _first(compared: Compared) -> Compared:
    """The same of the only cell."""
    change: Any = compared.change
    few: Any = compared.few
    one = Calibrations(*(next(m.cells()) for m in change)) if isinstance(change, Calibrations) else next(change.cells())
    down, up = (float(s[0]) for s in compared.slack)
    return compared._replace(change=one, few=few[0], slack=(down, up))


def whole(thing: MetricLike) -> MetricLike:
    """Return all slices of an arm together."""
    while slices_of(thing):
        if not hasattr(thing, "total"):
            raise InvalidInputError(f"a {type(thing).__name__} has no total: give arms of one cell, or slices")
        thing = thing.total
    return thing


def _texts(row: dict[str, Any]) -> list[str]:
    """A row as a person reads it."""
    found = Interval(row["low"], row["high"], row["change"], math.nan, "", "", 0.0, row["reason"])
    write = digits(found, row["relative"])
    some = math.isfinite(found.low) and math.isfinite(found.high)
    values = [str(row["treatment"]), row["metric"], row["role"], show(row["control_value"]), show(row["value"])]
    change = write(found.estimate) if math.isfinite(found.estimate) else ""
    between = f"{write(found.low)} to {write(found.high)}" if some else ""
    changed = "" if row["adjusted"] == row["p_value"] else p_text(row["adjusted"])
    return [*values, change, between, p_text(row["p_value"]), changed, row["word"], row["reason"] or ""]


COLUMNS = (
    "treatment", "metric", "role", "control_value", "value", "change", "low", "high", "p_value", "adjusted", "p_word",
    "word", "reason", "relative", "bound", "rows",
)  # fmt: skip
HEAD = ("treatment", "metric", "role", "control", "value", "change", "interval", "p", "adjusted", "", "reason")
NOTHING = dict.fromkeys(COLUMNS, math.nan) | {"role": "", "word": "", "relative": True, "rows": 0}
FIGURES = TableLayout(COLUMNS, HEAD, _texts, ("adjusted", "reason", "interval"))


def scorecard(
    arms: Any,
    *,
    control: Any,
    primary: str,
    guardrails: Mapping[str, float] | None = None,
    secondary: Iterable[str] = (),
    better: Mapping[str, str] | None = None,
    planned: float | None = None,
    users: float | Mapping[Any, float] | None = None,
    per_day: float | None = None,
    sequential: bool = False,
    confidence: float = 0.95,
    relative: bool = True,
    independent: bool = False,
    sample_ratio: SampleRatio | Mapping[Any, float] | None = None,
) -> Scorecard:
    """Return one verdict for each treatment: ship, do not, keep running, or nothing shown; and the figures behind it.

    Ship: the primary metric is better and every guardrail held. Do not: the primary metric is worse, or a guardrail
    breached. Else keep running, with how many more users or days; at the planned end nothing was shown.

    Parameters
    ----------
    arms : Sliced by arm, or dict
        What was counted, by arm; slices within arms are read together for the verdict, and by `Scorecard.slices`.
    control : key
        The arm that the others are compared with.
    primary : str
        The metric that decides.
    guardrails : dict of str to float, optional
        Metrics that must not become worse by more than a margin: 0.02 is 2 % of the control, in units of the metric with
        `relative=False`; of a calibration, by how much farther from 1.
    secondary : iterable of str
        Metrics that are shown, and decide nothing.
    better : dict of str to {"high", "low"}, optional
        Which values are good, of metrics that do not say it, such as a click rate, or a quantile of latency.
    planned : float, optional
        Users at the planned end, of the two arms that are compared. With the interval of one look, nothing is decided
        before.
    users : float, or dict by arm, optional
        Users so far, of the two arms; or of each arm.
    per_day : float, optional
        New users a day, of the two arms: then the days to go are told.
    sequential : bool
        Whether to read intervals that hold at all looks together; needs users and planned.
    confidence : float
        Nominal, of the whole: treatments share what is left of it.
    relative : bool
        Whether changes and margins are relative (a / b - 1) or differences.
    independent : bool
        As for `compare`.
    sample_ratio : SampleRatio, or dict by arm, optional
        What `sample_ratio_mismatch` found; or the shares planned, with users by arm. At its alarm verdicts are withheld.

    Returns
    -------
    Scorecard
        `verdicts` by treatment, each with its `decision` ("ship", "do not", "keep running", "nothing shown" or
        "withheld"), `sentence`, users and days to go; `table()` and `slices(adjust=)`, the figures; `exit_code`, 3 if a
        guardrail of any treatment is breached, else 0.

    Raises
    ------
    InvalidInputError
        There is no such arm or metric; nothing says which values of a metric are better; or as `compare`.

    Notes
    -----
    Ship needs all at once, so it is wrong with half of 1 - confidence at most, however many guardrails there are
    (intersection-union, Berger 1982). Do not ship needs any one: a guardrail is breached at (1 - confidence) / guardrails,
    and several treatments share what is left of it. As many comparisons as metrics and treatments: see `compare`.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user = rng.integers(0, 4000, 80_000)
    >>> arm = np.where(user % 2, "new", "old")
    >>> click = rng.random(80_000) < np.where(user % 2, 0.12, 0.10)
    >>> arms = sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="variant").update(y_true=click, user=user, variant=arm)
    >>> found = sm.scorecard(arms, control="old", primary="ctr", better={"ctr": "high"})
    >>> found.verdicts["new"].decision, found.exit_code
    ('ship', 0)
    """
    sides = {key: arms[key] for key in arms}
    if control not in sides or len(sides) < 2:
        raise InvalidInputError(
            f"a scorecard compares arms with one of them, the control {control!r}; there are {', '.join(map(str, sides))}"
        )
    totals = {arm: samples_of(whole(side)) for arm, side in sides.items()}
    metrics = {s.name: s.metric for s in totals[control]}
    held = margins_of(guardrails, relative)
    roles = [(primary, PRIMARY), *((name, GUARDRAIL) for name in held), *((name, SECONDARY) for name in secondary)]
    check_roles(roles, better or {})
    questions = tuple(question_of(n, role, metrics, better or {}, held.get(n)) for n, role in roles)
    asked = ScorecardOptions(questions, confidence, relative, independent)
    progress = {
        arm: Progress(users_of(users, control, arm), planned, per_day, sequential) for arm in sides if arm != control
    }
    made = Scorecard(sides, control, asked, progress, ratio_of(sample_ratio, users), totals)
    _ = made.verdicts  # so that what cannot be answered raises here
    return made


def margins_of(guardrails: Any, relative: bool) -> dict[str, float]:
    """The margin of each guardrail; raise for what is meant as percent."""
    if guardrails is not None and not isinstance(guardrails, Mapping):
        raise InvalidInputError(
            f'guardrails= takes metrics with their margins, such as {{"auc": 0.01}}, not {guardrails!r}'
        )
    held = dict(guardrails or {})
    for name, margin in held.items():
        if relative and margin >= 1:
            raise InvalidInputError(f"{name}: a margin of {margin:g} is {margin:.0%} of the control; 0.02 is 2 %")
    return held


def check_roles(roles: Sequence[tuple[str, str]], better: Mapping[str, str]) -> None:
    """Raise for a metric that is asked for twice, and for directions of none, or that are none."""
    names = [name for name, _ in roles]
    if twice := [name for name in names if names.count(name) > 1]:
        found = " and ".join(role for name, role in roles if name == twice[0])
        raise InvalidInputError(f"{twice[0]} is {found}: each metric has one role")
    for name, side in better.items():
        if name not in names:
            raise InvalidInputError(f"better= names {name!r}, which is not asked for; there are {', '.join(names)}")
        if side not in ("high", "low"):
            raise InvalidInputError(f'better= takes "high" or "low" for {name}, not {side!r}')


def question_of(
    name: str, role: str, metrics: Mapping[str, Any], better: Mapping[str, str], margin: float | None
) -> Question:
    """What is asked of a metric; raise where it is not there, or has no direction."""
    if name not in metrics:
        raise InvalidInputError(f"there is no metric {name!r}; there are {', '.join(metrics)}")
    best = better.get(name, metrics[name].about.best)
    if best == RATIO:
        best = "one"
    if best not in ("high", "low", "one"):
        raise InvalidInputError(
            f'nothing says which values of {name} are better: give better={{"{name}": "low"}}, or "high"'
        )
    return Question(name, role, best, margin if role == GUARDRAIL else None)


def users_of(users: Any, control: Any, arm: Any) -> float | None:
    """The users behind a comparison."""
    if users is None or not isinstance(users, Mapping):
        return None if users is None else float(users)
    if missing := [a for a in (control, arm) if a not in users]:
        raise InvalidInputError(f"users= has no arm {missing[0]!r}; it has {', '.join(map(str, users))}")
    return float(users[control]) + float(users[arm])


def ratio_of(ratio: Any, users: Any) -> SampleRatio | None:
    """Whether users fell to arms as planned; None if it was not asked."""
    if ratio is None or isinstance(ratio, SampleRatio):
        return ratio
    if not isinstance(users, Mapping):
        raise InvalidInputError(
            "planned shares in sample_ratio= need users= by arm; or give what sample_ratio_mismatch found"
        )
    return sample_ratio_mismatch(users, ratio)
