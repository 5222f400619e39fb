"""Build the data for an experiment's page and for the list of experiments. Templates only lay out this data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...inference.verdict import TOO_EARLY
from ...reports.charts import Chart
from ...reports.measure_rows import build_hero
from ...reports.numbers import format_count, format_fixed, format_share, typeset
from ...reports.page_model import Fact, Forest, Headline, MeasureRow, MeasureTable, NamedSide, RowAxis
from ...reports.scorecard_rows import FOREST
from ..calendar_days import count_days, find_next_day
from ..evaluation.evaluation import Evaluation, MetricRow, SourceStatus, TreatmentVerdict
from ..part_keys import HOUR, parse_hour
from ..store.journal import Decision
from . import time_charts
from .annotated_charts import annotate_looks, annotate_windows
from .headline_texts import (
    build_headline,
    describe_final_hours,
    describe_power,
    describe_staleness,
    describe_users,
    find_primary,
    split_sentence,
)
from .history import ExperimentHistory
from .table_rows import (
    Arms,
    assign_colours,
    build_figures,
    build_scorecard,
    build_slice_forest,
    format_badge,
    is_rate,
    list_treatments,
)
from .time_format import format_hour_end, format_span, format_time
from .view import View

__all__ = [
    "Choice",
    "Glance",
    "PageData",
    "build_arms_table",
    "build_glance",
    "build_page",
    "build_source_rows",
    "describe_computing",
]


class Choice(NamedTuple):
    """A link to a view of the page, such as the view of another metric.

    `query` is the URL query, and `is_selected` is true if the page currently shows this view. For a link to an arm,
    `number` is the color index of the arm.
    """

    text: str
    query: str
    is_selected: bool
    number: int | None = None


@dataclass
class PageData:
    """All data for the page of an experiment, as text, tables and charts. `build_page` creates it.

    `sides` contains the treatment and the control. `band` is the chart of earlier looks; if there are fewer than two,
    `hero` shows the current difference instead. `card` is the scorecard, and `forest` shows the differences by slice.
    """

    evaluation: Evaluation
    view: View
    history: ExperimentHistory
    headline: Headline
    badge: str
    arms: Arms
    sides: tuple[NamedSide, NamedSide] | None = None
    staleness: tuple[str, str] | None = None
    freshness: str = ""
    computing: str = ""
    data_end: float | None = None
    verdicts: list[tuple[TreatmentVerdict, int, str]] = field(default_factory=list)
    hero: tuple[MeasureRow, RowAxis] | None = None
    band: Chart | None = None
    card: MeasureTable | None = None
    charts: list[Chart] = field(default_factory=list)
    forest: Forest | None = None
    forest_note: str = ""
    users: list[tuple[str, str]] = field(default_factory=list)
    progress: float | None = None
    power: str = ""
    final_note: str = ""
    hours_note: str = ""
    provenance: list[tuple[str, str]] = field(default_factory=list)
    choices: dict[str, list[Choice]] = field(default_factory=dict)

    @property
    def withheld(self) -> bool:
        """Whether the page draws no conclusions from differences, because the arms are not comparable."""
        return bool(self.headline.alert)

    @property
    def day(self) -> str:
        """The day of the experiment, such as "day 3 of 14".

        If the experiment has ended, the text begins with "ended" or "planned users reached".
        """
        start, end = (self.history.definition.get(name) for name in ("start", "end"))
        text = f"day {max(math.ceil(self.evaluation.day), 1)}"
        if start is not None and end is not None:
            text += f" of {count_days(parse_hour(start), parse_hour(end), self.evaluation.timezone):.0f}"
        if self.evaluation.state != "ended":
            return text
        is_over = end is not None and self.evaluation.at >= parse_hour(end) * HOUR
        return f"{'ended' if is_over else 'planned users reached'}, {text}"


def build_page(evaluation: Evaluation, history: ExperimentHistory, view: View) -> PageData:
    """Return the data for the page of an experiment.

    `view` contains the visitor's choices, such as the metric. Missing and invalid choices are replaced with defaults.
    """
    planned = history.definition.get("arms", {})
    treatments = list_treatments(evaluation)
    arm = view.arm if view.arm in treatments else treatments[0] if treatments else ""
    verdict = next((t for t in evaluation.verdicts if t.treatment == arm), None)
    alarm = evaluation.ratio is not None and evaluation.ratio.alarm
    rows = build_figures(evaluation, arm, withheld=alarm)
    colours = assign_colours(evaluation, list(planned))
    badge = format_badge(evaluation)
    headline = build_headline(evaluation, verdict, [r for _, r in rows], colours, history.looks, badge)
    page = PageData(evaluation, view, history, headline, badge, colours)
    page.verdicts = [(t, colours[t.treatment].number, typeset(t.sentence)) for t in evaluation.verdicts]
    page.staleness, (page.freshness, page.data_end) = describe_staleness(evaluation), _describe_freshness(evaluation)
    page.users, page.progress = describe_users(evaluation, verdict), _compute_progress(evaluation)
    page.power, page.final_note = describe_power(evaluation, arm), describe_final_hours(evaluation)
    page.hours_note = _describe_hours(evaluation) if view.by == "hour" else ""
    page.provenance = _describe_provenance(evaluation)
    control = next((name for name in colours if name not in treatments), None)
    if arm and control is not None:
        page.sides = colours[arm], colours[control]
        _add_comparison(page, rows, arm)
    return page


def _add_comparison(page: PageData, rows: Sequence[tuple[str, MeasureRow]], arm: str) -> None:
    """Add the comparison of a treatment with the control to a page: scorecard, charts, slices and links."""
    evaluation, view, sides = page.evaluation, page.view, page.sides
    assert sides is not None
    primary = find_primary(evaluation, arm)
    metrics = [r.metric for r in evaluation.table if r.treatment == arm]
    metric = view.metric if view.metric in metrics else primary.metric if primary else next(iter(metrics), "")
    if rows:
        page.card = build_scorecard(rows, sides, page.badge)
    if primary is not None:
        looks = [look for look in page.history.looks if look.treatment == arm]
        page.band = time_charts.build_look_chart(looks, primary.metric, view)
        if page.band is not None:
            page.band = annotate_looks(page.band, page.history.annotations)
        elif primary.change is not None and primary.word != TOO_EARLY:
            page.hero = build_hero(rows[0][1], True)
    row = next((r for r in evaluation.table if r.treatment == arm and r.metric == metric), None)
    columns = list(dict.fromkeys(_slice_columns(r) for r in evaluation.slices))
    column = view.slice if view.slice in columns else ""
    slice_rows = [
        r for r in evaluation.slices if (r.treatment, r.metric) == (arm, metric) and column in ("", _slice_columns(r))
    ]
    page.forest = build_slice_forest(slice_rows, row, sides, page.badge, withheld=page.withheld)
    page.forest_note = FOREST + _describe_correction(slice_rows)
    page.charts = list(_build_charts(page, metric, row, sides))
    page.choices = _build_choices(page, metric, metrics, columns, column)


def _build_charts(
    page: PageData, metric: str, row: MetricRow | None, sides: tuple[NamedSide, NamedSide]
) -> Iterator[Chart]:
    evaluation, view = page.evaluation, page.view
    all_points = evaluation.series if view.by == "hour" else evaluation.days
    points = [p for p in all_points if p.metric == metric and view.contains(p.hour)]
    planned = {a.arm: a.planned for a in evaluation.arms}
    looks = [look for look in page.history.looks if look.treatment == sides[0].name]
    charts = (
        time_charts.build_window_chart(
            points, row.change if row and row.word != TOO_EARLY else None, metric, sides[0], view
        ),
        time_charts.build_arm_chart(points, metric, page.arms, view, percent=row is not None and is_rate(row)),
        time_charts.build_ratio_chart(looks, sides[0], planned.get(sides[0].name, 0.0), len(planned), view),
    )
    windows, arms, ratio = charts
    remarks = page.history.annotations
    if windows is not None:
        first = min(p.hour for p in points if p.arm == sides[0].name and p.change is not None)
        yield annotate_windows(windows, first, view.by, view.timezone, remarks)
    if arms is not None:
        first = min(p.hour for p in points if p.arm in page.arms and p.value is not None)
        yield annotate_windows(arms, first, view.by, view.timezone, remarks)
    if ratio is not None:
        yield annotate_looks(ratio, remarks)


def _build_choices(
    page: PageData, metric: str, metrics: Sequence[str], columns: Sequence[str], column: str
) -> dict[str, list[Choice]]:
    """Return the links to other views, grouped by the choice that they change, such as "metric".

    If there is only one arm, metric or slice column to choose from, its group is left out.
    """
    view, treatments = page.view, [t.treatment for t, _, _ in page.verdicts]
    assert page.sides is not None
    arm = page.sides[0].name
    choices = {
        "arm": [Choice(t, view.to_query(arm=t), t == arm, page.arms[t].number) for t in treatments],
        "metric": [Choice(m, view.to_query(metric=m), m == metric) for m in metrics],
        "slice": [Choice("all", view.to_query(slice=""), not column)]
        + [Choice(c, view.to_query(slice=c), c == column) for c in columns],
        "by": [Choice(f"by {by}", view.to_query(by=by), by == view.by) for by in ("day", "hour")],
    }
    return {name: links for name, links in choices.items() if len(links) > (2 if name == "slice" else 1)}


def _slice_columns(row: MetricRow) -> str:
    return " × ".join(row.slice)


def _describe_correction(rows: Sequence[MetricRow]) -> str:
    return " Readings are corrected for the number of slices." if len(rows) > 1 else ""


def _describe_freshness(evaluation: Evaluation) -> tuple[str, float | None]:
    """Return text such as "data to Mon 1 June 24:00 UTC", and the end of the last hour in seconds since 1970.

    If there is no data, the second value is None.
    """
    if evaluation.hours is None:
        return "no data yet", None
    # If a source has posted a part for an hour that is not over yet, the data ends now, not at the end of that hour.
    end = min((evaluation.hours[1] + 1) * float(HOUR), evaluation.at)
    return f"data to {_format_data_end(evaluation.hours[1], evaluation.at)}", end


def _describe_hours(evaluation: Evaluation) -> str:
    """Return text that says when the hourly values begin; "" if there are values for all hours.

    Once the parts of a day can no longer be corrected, the store merges them. After that, the hourly values of that day
    can no longer be computed.
    """
    first = min((point.hour for point in evaluation.series), default=None)
    if evaluation.hours is None:
        return ""
    if first is not None and first < find_next_day(evaluation.hours[0], evaluation.timezone):
        return ""
    since = (
        "There are no values by hour" if first is None else f"Values by hour begin {format_time(first * float(HOUR))}"
    )
    return f"{since}. The hours of earlier days are merged after correct_within_days; their days are shown by day."


def _format_data_end(hour: int, at: float) -> str:
    return format_hour_end(hour) if (hour + 1) * HOUR <= at else format_time(at)


def describe_computing(since: float | None) -> str:
    """Return text that says when the running evaluation started, or an empty string if none is running.

    Examples
    --------
    >>> describe_computing(1_800_000_000.0)
    'a new evaluation is being computed since Fri 15 January 08:00 UTC'
    """
    return "" if since is None else f"a new evaluation is being computed since {format_time(since)}"


def _compute_progress(evaluation: Evaluation) -> float | None:
    """Return the number of users so far divided by the planned number, at most 1; None if either number is unknown."""
    if not evaluation.users or not evaluation.planned:
        return None
    return min(evaluation.users / evaluation.planned, 1.0)


def _describe_provenance(evaluation: Evaluation) -> list[tuple[str, str]]:
    terms = [
        ("evaluated", format_time(evaluation.at)),
        ("rows", f"{format_count(evaluation.rows)} in {format_count(evaluation.parts)} parts"),
    ]
    if evaluation.hours is not None:
        first, last = evaluation.hours
        terms.append(("hours", f"{format_time(first * float(HOUR))} to {_format_data_end(last, evaluation.at)}"))
    terms.append(("definition", f"version {evaluation.version}"))
    if evaluation.digest:
        terms.append(("state", f"sha256 {evaluation.digest}"))
    return terms


class Glance(NamedTuple):
    """A row in the list of all experiments, with the experiment's verdict, freshness, users, alerts, owner and tags."""

    id: str
    title: str
    decision: str
    sentence: str
    freshness: str
    data_end: float | None
    day: int
    users: str
    alerts: list[Fact]
    about: str


def build_glance(
    evaluation: Evaluation, definition: Mapping[str, Any], conflicts: int = 0, recorded: Decision | None = None
) -> Glance:
    """Return the row of an experiment in the list of experiments, with its decision, freshness, users and alerts.

    `definition` is the definition as JSON values, `conflicts` is the number of conflicts that await a decision, and
    `recorded` is the last decision that an owner recorded.
    """
    alerts = []
    if evaluation.ratio is not None and evaluation.ratio.alarm:
        alerts.append(Fact("but", "sample ratio", ""))
    breached = Counter(r.metric for r in evaluation.table if r.word == "breached")
    if not alerts and breached:
        alerts.append(Fact("but", "guardrail breached", ", ".join(breached)))
    late = [s for s in evaluation.sources if s.is_behind]
    alerts += [Fact("but" if s.state == "silent" else "tag", s.state, _format_delay(s.source, s.behind)) for s in late]
    if conflicts:
        alerts.append(Fact("tag", "conflicts", format_count(conflicts)))
    sentence, decision = _summarize_verdicts(evaluation)
    if recorded is not None:
        sentence, decision = f"All users get {recorded.arm}, says {recorded.by}.", "decided"
    about = " · ".join(text for text in (definition.get("owner"), ", ".join(definition.get("tags", []))) if text)
    planned = f" of {format_count(evaluation.planned)}" if evaluation.planned else ""
    fresh, behind = _describe_freshness(evaluation)
    return Glance(
        evaluation.experiment, evaluation.title or evaluation.experiment, decision, sentence, fresh, behind,
        max(math.ceil(evaluation.day), 1),
        f"{format_count(evaluation.users)}{planned}" if evaluation.users is not None else "–", alerts, about,
    )  # fmt: skip


def _summarize_verdicts(evaluation: Evaluation) -> tuple[str, str]:
    """Return a short sentence and a decision for the list of experiments.

    Both are about the treatment with the most urgent decision.
    """
    if evaluation.state == "no data":
        return "No part has been posted yet.", "no data"
    if evaluation.ratio is not None and evaluation.ratio.alarm:
        return "The arms are not comparable.", "withheld"
    if evaluation.withheld or not evaluation.verdicts:
        return typeset(evaluation.withheld) or "No verdict yet.", "no verdict yet"
    order = {"do not": 0, "ship": 1, "inconclusive": 2}
    worst = min(evaluation.verdicts, key=lambda t: order.get(t.decision, 3))
    more = len(evaluation.verdicts) - 1
    rest = f" And {more} more treatment{'s' if more > 1 else ''}." if more else ""
    head = split_sentence(typeset(worst.sentence))[0]
    who = f"{worst.treatment}: " if more else ""
    return f"{who}{head.partition(': ')[2] or head}{rest}", worst.decision


def _format_delay(source: str, seconds: float | None) -> str:
    return f"{source}, {format_span(seconds)} overdue" if seconds else source


def build_arms_table(page: PageData) -> tuple[str, list[tuple[NamedSide, list[str]]]]:
    """Return the name of the primary metric, and the table of arms as pairs of an arm and its table cells.

    The cells contain, in this order, the planned share, the number of users and the actual share. They are followed by
    the number of rows, the number of positive labels, and the value of the primary metric.
    """
    evaluation = page.evaluation
    metric = next((r.metric for r in evaluation.table if r.role == "primary"), "")
    first = page.card.groups[0].rows[0].a if page.card and page.card.groups else ""
    decimals = len(first.rstrip("\u202f%").partition(".")[2]) if first.strip("–") else 4
    percent = first.endswith("%")
    order = list(page.arms)
    return metric, [
        (page.arms[a.arm], [format_share(a.planned, 1), format_count(a.users),
                            "" if a.share is None else format_share(a.share, 2), format_count(a.rows),
                            format_count(a.positives), format_fixed(a.value, decimals, percent)])
        for a in sorted(evaluation.arms, key=lambda a: order.index(a.arm))
    ]  # fmt: skip


def build_source_rows(page: PageData) -> list[tuple[SourceStatus, list[str]]]:
    """Return the table of sources as pairs of a source and its table cells.

    The cells contain the last hour, the delay, the number of parts, the number of late parts, and the missing hours.
    They also contain the number of rows, and the number of dropped rows for each reason.
    """
    return [
        (s, ["–" if s.counted_to is None else _format_data_end(s.counted_to, page.evaluation.at),
             format_span(s.behind) if s.behind else "–",
             format_count(s.parts), format_count(s.late), _format_missing_hours(s.missing), format_count(s.rows) or "–",
             ", ".join(f"{format_count(n)} {why}" for why, n in s.dropped.items() if n) or "0"])
        for s in page.evaluation.sources
    ]  # fmt: skip


def _format_missing_hours(hours: Sequence[str]) -> str:
    """Return text that lists the first three of `hours` and counts the others; "none" if there are no hours."""
    more = f" and {len(hours) - 3} more" if len(hours) > 3 else ""
    return ", ".join(format_time(parse_hour(h) * float(HOUR))[4:-4] for h in hours[:3]) + more or "none"
