"""All that the page of an experiment shows, as plain data: templates only place it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...reports.charts import Chart
from ...reports.figures import hero_of
from ...reports.numbers import count, fixed, share, typeset
from ...reports.page_model import Fact, Figure, Figures, Forest, Headline, NamedSide, RowAxis
from ...reports.scorecard_rows import FOREST
from ..evaluation.evaluation import Evaluation, Row, SourceStatus, Told
from ..store.part_keys import HOUR, hour_of
from . import over_time
from .known import Known
from .rows import Arms, arms_of, badge_of, figures_of, forest_of, is_rate, scorecard_of, treatments_of
from .times import ago, end_of, moment
from .view import View
from .words import final_of, power_of, primary_of, split, stale_of, users_of, words_of

__all__ = ["Choice", "Glance", "Scene", "arms_table", "glance_of", "scene_of", "source_rows"]


class Choice(NamedTuple):
    """A link to another view: its text, its address, and whether it is the one that is shown."""

    text: str
    query: str
    chosen: bool
    number: int | None = None


@dataclass
class Scene:
    """A page of an experiment as plain data; see `scene_of`."""

    evaluation: Evaluation
    view: View
    known: Known
    words: Headline
    badge: str
    arms: Arms
    sides: tuple[NamedSide, NamedSide] | None = None
    stale: tuple[str, str] | None = None
    fresh: str = ""
    behind: float | None = None
    told: list[tuple[Told, int, str]] = field(default_factory=list)
    hero: tuple[Figure, RowAxis] | None = None
    band: Chart | None = None
    card: Figures | None = None
    charts: list[Chart] = field(default_factory=list)
    forest: Forest | None = None
    forest_note: str = ""
    users: list[tuple[str, str]] = field(default_factory=list)
    part: float | None = None
    power: str = ""
    final: str = ""
    provenance: list[tuple[str, str]] = field(default_factory=list)
    choices: dict[str, list[Choice]] = field(default_factory=dict)

    @property
    def withheld(self) -> bool:
        """Whether arms are not comparable, and so nothing is read."""
        return bool(self.words.alert)

    @property
    def day(self) -> str:
        """Which day it is, of how many."""
        start, end = (self.known.definition.get(name) for name in ("start", "end"))
        of = f" of {(end - start) / 24:.0f}" if isinstance(start, int) and isinstance(end, int) else ""
        return f"day {max(math.ceil(self.evaluation.day), 1)}{of}"


def scene_of(evaluation: Evaluation, known: Known, view: View) -> Scene:
    """Return what a page shows of an evaluation; what the view does not say, or says wrongly, is chosen here."""
    planned = known.definition.get("arms", {})
    treatments = treatments_of(evaluation)
    arm = view.arm if view.arm in treatments else treatments[0] if treatments else ""
    told = next((t for t in evaluation.verdicts if t.treatment == arm), None)
    alarm = evaluation.ratio is not None and evaluation.ratio.alarm
    rows = figures_of(evaluation, arm, withheld=alarm)
    colours = arms_of(evaluation, list(planned))
    badge = badge_of(evaluation)
    words = words_of(evaluation, told, [r for _, r in rows], colours, known.looks, badge)
    scene = Scene(evaluation, view, known, words, badge, colours)
    scene.told = [(t, colours[t.treatment].number, typeset(t.sentence)) for t in evaluation.verdicts]
    scene.stale, (scene.fresh, scene.behind) = stale_of(evaluation), _fresh(evaluation)
    scene.users, scene.part = users_of(evaluation, told), _part(evaluation)
    scene.power, scene.final = power_of(evaluation, arm), final_of(evaluation)
    scene.provenance = _provenance(evaluation)
    control = next((name for name in colours if name not in treatments), None)
    if arm and control is not None:
        scene.sides = colours[arm], colours[control]
        _compared(scene, rows, arm)
    return scene


def _compared(scene: Scene, rows: Sequence[tuple[str, Figure]], arm: str) -> None:
    """Add what there is of a treatment beside the control."""
    evaluation, view, sides = scene.evaluation, scene.view, scene.sides
    assert sides is not None
    primary = primary_of(evaluation, arm)
    metrics = [r.metric for r in evaluation.table if r.treatment == arm]
    metric = view.metric if view.metric in metrics else primary.metric if primary else next(iter(metrics), "")
    if rows:
        scene.card = scorecard_of(rows, sides, scene.badge)
    if primary is not None:
        looks = [look for look in scene.known.looks if look.treatment == arm]
        scene.band = over_time.band_of(looks, primary.metric, view)
        if scene.band is None and primary.change is not None:
            scene.hero = hero_of(rows[0][1], True)
    row = next((r for r in evaluation.table if r.treatment == arm and r.metric == metric), None)
    columns = list(dict.fromkeys(_columns(r) for r in evaluation.slices))
    column = view.slice if view.slice in columns else ""
    mine = [r for r in evaluation.slices if (r.treatment, r.metric) == (arm, metric) and column in ("", _columns(r))]
    scene.forest = forest_of(mine, row, sides, scene.badge, withheld=scene.withheld)
    scene.forest_note = FOREST + _corrected(mine)
    scene.charts = list(_charts(scene, metric, row, sides))
    scene.choices = _choices(scene, metric, metrics, columns, column)


def _charts(scene: Scene, metric: str, row: Row | None, sides: tuple[NamedSide, NamedSide]) -> Iterator[Chart]:
    evaluation, view = scene.evaluation, scene.view
    kept = evaluation.series if view.by == "hour" else evaluation.days
    points = [p for p in kept if p.metric == metric and view.holds(p.hour)]
    planned = {a.arm: a.planned for a in evaluation.arms}
    looks = [look for look in scene.known.looks if look.treatment == sides[0].name]
    made = (
        over_time.by_window(points, row.change if row else None, metric, sides[0], view.by),
        over_time.by_arm(points, metric, scene.arms, view.by, percent=row is not None and is_rate(row)),
        over_time.ratio_of(looks, sides[0], planned.get(sides[0].name, 0.0), len(planned)),
    )
    yield from (chart for chart in made if chart is not None)


def _choices(
    scene: Scene, metric: str, metrics: Sequence[str], columns: Sequence[str], column: str
) -> dict[str, list[Choice]]:
    """Return the links to other views; none where there is no choice."""
    view, treatments = scene.view, [t.treatment for t, _, _ in scene.told]
    assert scene.sides is not None
    arm = scene.sides[0].name
    made = {
        "arm": [Choice(t, view.query(arm=t), t == arm, scene.arms[t].number) for t in treatments],
        "metric": [Choice(m, view.query(metric=m), m == metric) for m in metrics],
        "slice": [Choice("all", view.query(slice=""), not column)]
        + [Choice(c, view.query(slice=c), c == column) for c in columns],
        "by": [Choice(f"by {by}", view.query(by=by), by == view.by) for by in ("day", "hour")],
    }
    return {name: some for name, some in made.items() if len(some) > (2 if name == "slice" else 1)}


def _columns(row: Row) -> str:
    return " × ".join(row.slice)


def _corrected(rows: Sequence[Row]) -> str:
    return " Readings allow for how many slices there are." if len(rows) > 1 else ""


def _fresh(evaluation: Evaluation) -> tuple[str, float | None]:
    """To which hour data is, and the time of its end."""
    if evaluation.hours is None:
        return "no data yet", None
    return f"data to {end_of(evaluation.hours[1])}", (evaluation.hours[1] + 1) * float(HOUR)


def _part(evaluation: Evaluation) -> float | None:
    """How far the experiment is, by users."""
    if not evaluation.users or not evaluation.planned:
        return None
    return min(evaluation.users / evaluation.planned, 1.0)


def _provenance(evaluation: Evaluation) -> list[tuple[str, str]]:
    told = [("read", moment(evaluation.at)), ("rows", f"{count(evaluation.rows)} in {count(evaluation.parts)} parts")]
    if evaluation.hours is not None:
        first, last = evaluation.hours
        told.append(("hours", f"{moment(first * float(HOUR))} to {end_of(last)}"))
    told.append(("definition", f"version {evaluation.version}"))
    if evaluation.digest:
        told.append(("state", f"sha256 {evaluation.digest}"))
    return told


class Glance(NamedTuple):
    """An experiment in the list of all."""

    id: str
    title: str
    decision: str
    sentence: str
    fresh: str
    behind: float | None
    day: int
    users: str
    alerts: list[Fact]
    at: float


def glance_of(evaluation: Evaluation, conflicts: int = 0) -> Glance:
    """Return what is said of an experiment in the list of all."""
    alerts = []
    if evaluation.ratio is not None and evaluation.ratio.alarm:
        alerts.append(Fact("but", "sample ratio", ""))
    broken = Counter(r.metric for r in evaluation.table if r.word == "breached")
    if not alerts and broken:
        alerts.append(Fact("but", "guardrail breached", ", ".join(broken)))
    late = [s for s in evaluation.sources if s.state != "fresh"]
    alerts += [Fact("but" if s.state == "silent" else "tag", s.state, _behind(s.source, s.behind)) for s in late]
    if conflicts:
        alerts.append(Fact("tag", "conflicts", count(conflicts)))
    sentence, decision = _said(evaluation)
    planned = f" of {count(evaluation.planned)}" if evaluation.planned else ""
    fresh, behind = _fresh(evaluation)
    return Glance(
        evaluation.experiment, evaluation.title or evaluation.experiment, decision, sentence, fresh, behind,
        max(math.ceil(evaluation.day), 1), f"{count(evaluation.users)}{planned}" if evaluation.users is not None else "–",
        alerts, evaluation.at,
    )  # fmt: skip


def _said(evaluation: Evaluation) -> tuple[str, str]:
    """The sentence and the decision; of several treatments the one that asks most for action."""
    if evaluation.state == "no data":
        return "No part has come.", "no data"
    if evaluation.ratio is not None and evaluation.ratio.alarm:
        return "The arms are not comparable.", "withheld"
    if evaluation.withheld or not evaluation.verdicts:
        return typeset(evaluation.withheld) or "No verdict yet.", "no verdict yet"
    order = {"do not": 0, "ship": 1, "nothing shown": 2}
    worst = min(evaluation.verdicts, key=lambda t: order.get(t.decision, 3))
    more = len(evaluation.verdicts) - 1
    rest = f" And {more} more treatment{'s' if more > 1 else ''}." if more else ""
    head = split(typeset(worst.sentence))[0]
    who = f"{worst.treatment}: " if more else ""
    return f"{who}{head.partition(': ')[2] or head}{rest}", worst.decision


def _behind(source: str, seconds: float | None) -> str:
    return f"{source}, by {ago(seconds)}" if seconds else source


def arms_table(scene: Scene) -> tuple[str, list[tuple[NamedSide, list[str]]]]:
    """Return the name of the primary metric, and the arms: planned, users, share, rows, positives and that metric."""
    evaluation = scene.evaluation
    metric = next((r.metric for r in evaluation.table if r.role == "primary"), "")
    first = scene.card.groups[0].rows[0].a if scene.card and scene.card.groups else ""
    decimals = len(first.rstrip("\u202f%").partition(".")[2]) if first.strip("–") else 4
    percent = first.endswith("%")
    order = list(scene.arms)
    return metric, [
        (scene.arms[a.arm], [share(a.planned, 1), count(a.users), "" if a.share is None else share(a.share, 2),
                             count(a.rows), count(a.positives), fixed(a.value, decimals, percent)])
        for a in sorted(evaluation.arms, key=lambda a: order.index(a.arm))
    ]  # fmt: skip


def source_rows(scene: Scene) -> list[tuple[SourceStatus, list[str]]]:
    """Return the sources: to where each is counted, how far behind, parts, late ones, missing hours, and rows left out."""
    return [
        (s, ["–" if s.counted_to is None else end_of(s.counted_to), ago(s.behind) if s.behind else "–", count(s.parts),
             count(s.late), _missing(s.missing), count(s.rows) or "–",
             ", ".join(f"{count(n)} {why}" for why, n in s.dropped.items() if n) or "0"])
        for s in scene.evaluation.sources
    ]  # fmt: skip


def _missing(hours: Sequence[str]) -> str:
    """Hours that did not come: the first three, and how many more."""
    more = f" and {len(hours) - 3} more" if len(hours) > 3 else ""
    return ", ".join(moment(hour_of(h) * float(HOUR))[4:-4] for h in hours[:3]) + more or "none"
