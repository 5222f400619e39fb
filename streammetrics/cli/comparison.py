"""Compare the models in a log, the arms of an experiment, or saved states.

The results are verdicts (which side is better) and tables of differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from streammetrics.cli.messages import UsageError, unknown_name_error
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import MetricLike
from streammetrics.compose.axis_wrapper import AxisWrapper
from streammetrics.compose.sliced import Sliced
from streammetrics.compose.windowed import Windowed
from streammetrics.inference.caveats import Note, describe_caveats
from streammetrics.inference.compare import compare_all
from streammetrics.inference.comparison import Comparisons
from streammetrics.inference.interpretation import ComparisonSettings
from streammetrics.inference.multiple import SLICE_CORRECTION
from streammetrics.inference.sample_ratio import SampleRatio
from streammetrics.inference.scorecard import Scorecard, count_users, scorecard
from streammetrics.inference.sentences import NamedComparison, name_sides
from streammetrics.inference.verdict import Progress
from streammetrics.numerics.slice_keys import format_atom
from streammetrics.reports.differences import (
    NumberChange,
    build_difference_grid,
    build_slice_grid,
    collect_card_changes,
    collect_model_changes,
    describe_left_out,
)
from streammetrics.reports.differences import build_scorecard_grid as figures
from streammetrics.reports.records import (
    build_slice_records,
    collect_entries,
    find_sharded,
    find_windows,
    group_comparable_tasks,
    merge_cells,
    split_pieces,
)
from streammetrics.reports.tables import format_confidence
from streammetrics.reports.text_table import Grid

__all__ = [
    "ComparisonOptions",
    "SideComparison",
    "build_comparisons",
    "check_metric_names",
    "check_same_shards",
    "expand_metric_names",
    "parse_directions",
    "parse_margins",
    "select_slices",
]


COUNT_TOLERANCE = 0.1
"""The number of counted users may exceed `--users` by this fraction, because `--users` may be from an earlier hour."""


@dataclass(frozen=True)
class ComparisonOptions:
    """Options for comparing several sides: models, arms of an experiment, or saved states.

    Parameters
    ----------
    control : str or None
        The name of the side that the others are compared with. If it is None, the first model is the control.
    primary : str or None
        The metric that decides which side is better; by default the first metric with a known better direction.
    guardrails : dict of str to float
        Metrics that must not worsen by more than a margin, each mapped to its margin, such as 0.02 for 2 %.
    relative : bool
        Whether changes and margins are relative to the control, rather than in the unit of the metric.
    better : dict of str to str
        Whether "high" or "low" values are better, for metrics without a known better direction.
    users : float or None
        The number of users so far, summed over the two compared sides.
    counted : dict of str to float
        The number of users in each arm, counted in the log or in the exposures; empty if they were not counted.
    planned : float or None
        The planned number of users, summed over the two compared sides.
    final : bool
        Whether the experiment is over, so that no more users will join.
    sequential : bool
        Whether intervals remain valid if results are inspected repeatedly, for example every day.
    confidence : float
        The confidence level of intervals.
    independent : bool
        Whether to assume that no unit, such as a user, has rows on both sides. If so, sides can be compared even if
        their units are not split into the same shards.
    experiment : bool
        Whether the sides are arms of an experiment. If so, a scorecard gives a verdict. A comparison of models has a
        scorecard only if there are guardrails, or if `planned`, `final` or `sequential` is set.
    ratio : SampleRatio or None
        The test of whether users are split between the arms as planned; None if there are no planned shares. If the
        test detects a mismatch, verdicts are withheld.
    covariates : tuple of dict of str to MetricLike
        Each dict contains metrics from before the treatment, keyed by the name of the side. These metrics adjust the
        comparison of all rows, but not the comparisons of slices.
    """

    control: str | None = None
    primary: str | None = None
    guardrails: Mapping[str, float] = field(default_factory=dict)
    relative: bool = True
    better: Mapping[str, str] = field(default_factory=dict)
    users: float | None = None
    planned: float | None = None
    counted: Mapping[str, float] = field(default_factory=dict)
    final: bool = False
    sequential: bool = False
    confidence: float = 0.95
    independent: bool = False
    experiment: bool = False
    ratio: SampleRatio | None = None
    covariates: tuple[Mapping[str, MetricLike], ...] = ()

    @property
    def has_scorecard(self) -> bool:
        """Whether the comparison has a scorecard with a verdict; if not, one sentence says which side is better."""
        return self.experiment or bool(self.guardrails) or self.planned is not None or self.final or self.sequential

    @property
    def names(self) -> list[str]:
        """The names of all metrics in the options: the primary metric, the guardrails, and the metrics in `better`."""
        return [*([self.primary] if self.primary else []), *self.guardrails, *self.better]

    def build_progress(self, users: float | None) -> Progress:
        """Return a `Progress` with these options and the number of users so far."""
        return Progress(users, self.planned, None, self.sequential, self.final, self.confidence)

    def check(self, *, counts_users: bool = False) -> None:
        """Raise UsageError if options contradict each other, or if --users is missing and the log has no users."""
        if (self.planned is not None or self.sequential) and self.users is None and not counts_users:
            raise UsageError(
                f"{'--sequential' if self.sequential else '--planned'} needs --users, the number of users so far (eval "
                f"counts them only with --arm and a column in --unit)"
            )
        if self.final and self.planned is not None and not self.sequential:
            raise UsageError(
                "--planned and --final contradict each other: with --planned, the only look is at the planned number of "
                "users, and with --final it is now; leave out one of them"
            )
        if self.primary in self.guardrails:
            raise UsageError(
                f"--guardrail {self.primary}: the primary metric cannot be a guardrail as well; remove this guardrail, or "
                f"choose another metric with --primary"
            )


@dataclass(frozen=True)
class SideComparison:
    """A comparison of models, arms or saved states with a control, either for all rows or for each slice.

    Parameters
    ----------
    sides : dict of str to MetricLike
        The metrics of each side, keyed by the name of the side. The control is one of the sides.
    control : str
        The name of the side that the others are compared with.
    options : ComparisonOptions
        The options of the comparison.
    title : str
        The name of the slices, such as "by country"; empty for all rows.
    order : dict of tuple to int
        The keys of the slices to show, in display order, and the number of rows in each.
    overall : SideComparison or None
        For slices, the comparison of all rows, which supplies the scorecard; None if this is a comparison of all rows.
    """

    sides: Mapping[str, MetricLike]
    control: str
    options: ComparisonOptions
    title: str = ""
    order: Mapping[tuple[Any, ...], int] = field(default_factory=dict)
    overall: SideComparison | None = None

    @property
    def treatments(self) -> list[str]:
        """The names of all sides except the control."""
        return [name for name in self.sides if name != self.control]

    @cached_property
    def comparisons(self) -> dict[str, Comparisons]:
        """The comparison of each treatment with the control. For slices, p-values are adjusted for multiplicity."""
        options, control = self.options, self.sides[self.control]
        adjust = SLICE_CORRECTION if self.title else None

        def compare_side(name: str) -> Comparisons:
            look = options.build_progress(count_users(self.users, self.control, name)).look
            settings = ComparisonSettings(self._confidence, look, adjust=adjust)
            covariates, is_independent = self._pair_covariates(name), options.independent
            return compare_all(self.sides[name], control, settings, independent=is_independent, covariates=covariates)

        return {name: compare_side(name) for name in self.treatments}

    def _pair_covariates(self, treatment: str) -> list[tuple[MetricLike, MetricLike]]:
        """Return a pair of metrics (treatment, control) for each covariate; for slices, return an empty list."""
        covariates = () if self.title else self.options.covariates
        for sides in covariates:
            if missing := [name for name in (treatment, self.control) if name not in sides]:
                raise UsageError(
                    f"--covariate: expected the arm {missing[0]}, found only {', '.join(sides)}; add its data"
                )
        return [(merge_cells(sides[treatment]), merge_cells(sides[self.control])) for sides in covariates]

    @property
    def users(self) -> float | Mapping[str, float] | None:
        """The number of users: a single number for both compared arms together, or one for each arm.

        The number in the options (`--users`) takes precedence over the counted numbers, unless these exceed it by more
        than 10 % (`COUNT_TOLERANCE`). The result is None if both are unknown.
        """
        stated, counted = self.options.users, self.options.counted
        if not self.sides.keys() <= counted.keys():
            return stated
        most = max(counted[name] for name in self.treatments) + counted[self.control]
        return counted if stated is None or most > stated * (1.0 + COUNT_TOLERANCE) else stated

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics by which the sides are compared, keyed by name."""
        return {
            r.differences.pair.name: r.differences.pair.metric
            for comparisons in self.comparisons.values()
            for r in comparisons.readings
        }

    @cached_property
    def card(self) -> Scorecard | None:
        """The scorecard with the verdicts on all treatments; None if the options request no scorecard."""
        options = self.options
        if not options.has_scorecard:
            return None
        if self.overall is not None and self.overall.card is not None:
            return replace(self.overall.card, arms=self.sides)
        metrics = self.metrics
        directed = [n for n, m in metrics.items() if m.about.best is not None or n in options.better]
        primary = options.primary or next((name for name in directed if name not in options.guardrails), None)
        if primary is None and directed:
            raise UsageError(
                f"expected a primary metric, found only guardrails: {', '.join(directed)}; choose another metric with "
                f"--primary"
            )
        if primary is None:
            raise UsageError(
                f"expected a primary metric, but it is unknown whether high or low values are better for "
                f"{', '.join(metrics)}; add --primary {next(iter(metrics))} --better {next(iter(metrics))}=high (or low)"
            )
        return scorecard(
            self.sides,
            control=self.control,
            primary=primary,
            guardrails=options.guardrails,
            secondary=[n for n in directed if n != primary and n not in options.guardrails],
            better=options.better,
            planned=options.planned,
            users=self.users,
            final=options.final,
            sequential=options.sequential,
            confidence=options.confidence,
            relative=options.relative,
            independent=options.independent,
            sample_ratio=options.ratio,
            covariates=options.covariates,
        )

    @property
    def sentences(self) -> list[str]:
        """One sentence for each treatment: the verdict, or a statement of which side is better."""
        if self.card is not None:
            return self.card.sentences
        return [one.sentence for one in self.model_comparisons]

    @cached_property
    def notes(self) -> dict[str, list[Note]]:
        """Notes about the comparison of each treatment with the control, keyed by treatment."""
        whole = self.comparisons if self.overall is None else self.overall.comparisons
        notes = {}
        for name, comparisons in self.comparisons.items():
            differences = [[r.differences for r in some.readings] for some in (whole[name], comparisons)]
            parts = differences[1] if self.title and self.overall is not None else []
            names = name, self.control
            found = describe_caveats(differences[0], parts, comparisons.by, names, whole[name].settings)
            notes[name] = [note for note in found if note.is_warning or not self.title]
        return notes

    @property
    def model_comparisons(self) -> list[NamedComparison]:
        """The comparison of each treatment with the control, with the names of both sides."""
        return [self._name_comparison(name, comparisons) for name, comparisons in self.comparisons.items()]

    def _name_comparison(self, name: str, comparisons: Comparisons) -> NamedComparison:
        primary = self.options.primary
        if primary is not None and not self.title and primary not in comparisons:
            raise unknown_name_error("metric", primary, list(comparisons), "both sides")
        return NamedComparison(name, self.control, comparisons, primary)

    def list_report_objects(self) -> list[Scorecard | NamedComparison]:
        """Return the objects that a report shows: the scorecard, if there is one, otherwise the model comparisons.

        For windows without a scorecard, the list is empty, because a report draws windows directly from the metrics.
        """
        if self.card is not None:
            return [self.card]
        return [] if isinstance(self.sides[self.control], Windowed) else [*self.model_comparisons]

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 3 if a guardrail is breached, otherwise 0."""
        return 0 if self.card is None else self.card.exit_code

    def grids(self) -> list[Grid]:
        """Return the differences as tables."""
        confidence = self._confidence_label
        if self.title:
            by = next(iter(self.comparisons.values())).by
            return (
                [
                    build_slice_grid(
                        self.collect_changes(), by, self.order, f"{self._sides_label}, {self.title}", confidence
                    )
                ]
                if self.order
                else []
            )
        if self.card is not None:
            together = format_confidence(self.options.confidence)
            verdicts = self.card.verdicts.values()
            grid = figures(self.collect_changes(), self.control, confidence, together, verdicts)
            return [replace(grid, remarks=[*grid.remarks, *describe_left_out(self.metrics, self.card)])]
        return [
            build_difference_grid([c for c in self.collect_changes() if c.treatment == n], self.control, confidence)
            for n in self.comparisons
        ]

    def collect_changes(self) -> list[NumberChange]:
        """Return the rows of the table of differences."""
        if self.card is not None:
            table = self.card.slices(SLICE_CORRECTION) if self.title else self.card.table()
            changes = collect_card_changes(self.card, table)
        else:
            changes = [
                one
                for name, comparisons in self.comparisons.items()
                for one in collect_model_changes(name, comparisons)
            ]
        return [c._replace(reason=c.reason and name_sides(c.reason, c.treatment, self.control)) for c in changes]

    @property
    def _sides_label(self) -> str:
        return f"{', '.join(self.treatments)} against {self.control}"

    @property
    def _confidence(self) -> float:
        """The confidence level of each interval.

        In a scorecard, the probability of error, 1 - confidence, is divided by the number of treatments.
        """
        confidence = self.options.confidence
        shared = self.options.has_scorecard and len(self.treatments) > 1
        return 1.0 - (1.0 - confidence) / len(self.treatments) if shared else confidence

    @property
    def _confidence_label(self) -> str:
        return format_confidence(self._confidence) + (" always" if self.options.sequential else "")


# -- Sides -----------------------------------------------------------------------------------------------------------


def compare_models(result: Any, group: Sequence[str], options: ComparisonOptions, order: Any = None) -> SideComparison:
    """Compare the models of one log with a control, by default the first model."""
    control = group[0] if options.control is None else _find_model(options.control, group)
    sides = {_shorten_name(name, group): result.task(name) for name in group}
    return SideComparison(sides, _shorten_name(control, group), options, **_describe_axis(result, order))


def _shorten_name(name: str, group: Sequence[str]) -> str:
    """Return a model name without its task (`pctr_a` for `ctr/pctr_a`) if all models in the group share that task."""
    parents = {one.rpartition("/")[0] for one in group}
    return name.rpartition("/")[2] if len(parents) == 1 else name


def _find_model(name: str, group: Sequence[str]) -> str:
    """Return the full name of a model, such as `ctr/pctr_a`, even if `name` omits the task (`pctr_a`).

    If the group contains no such model, return the first one.
    """
    return next((one for one in group if name in (one, one.rpartition("/")[2])), group[0])


def compare_arms(sliced: Sliced, options: ComparisonOptions, order: Any = None) -> SideComparison:
    """Compare the arms of an experiment. Rows without an arm are excluded."""
    sides = {format_atom(key): sliced[key] for key in sliced.keys if key is not None}
    # Users can write a boolean arm in lower or upper case, such as true or True.
    if options.control not in sides:
        boolean_arms = {format_atom(arm).lower(): format_atom(arm) for arm in sliced.keys if isinstance(arm, bool)}
        if (control := boolean_arms.get(str(options.control).lower())) is None:
            hint = f"choose from {', '.join(sides)}" if sides else "no counted row has an arm"
            raise UsageError(f"--control {options.control}: there is no such arm in column {sliced.by[0]!r}; {hint}")
        options = replace(options, control=control)
    if len(sides) < 2:
        raise UsageError(
            f"--arm {sliced.by[0]}: expected at least two arms, found only {options.control}; score a log that contains "
            f"the rows of the other arms, too"
        )
    # The table of exposures may list no users of an arm that is in the log. Such an arm has 0 users.
    counted = {arm: options.counted.get(arm, 0.0) for arm in sides} if options.counted else {}
    options = replace(options, experiment=True, counted=counted)
    return SideComparison(sides, str(options.control), options, **_describe_axis(sliced.total, order))


def _describe_axis(result: Any, order: Any) -> dict[str, Any]:
    """Return the arguments `title` and `order` for a `SideComparison` of slices or windows.

    For metrics of all rows, return an empty dict. The parameter `order` is a function that selects the slices to show.
    """
    if not isinstance(result, AxisWrapper):
        return {}
    if isinstance(result, Windowed):
        return {"title": f"by {result.width} of {result.time}", "order": order(result)}
    return {"title": f"by {', '.join(definition_of(result).levels)}", "order": order(result)}


def select_slices(piece: AxisWrapper, top: int | None = None, **shown_how: Any) -> dict[tuple[Any, ...], int]:
    """Return the keys of the slices to show in a table, in order, and the number of rows in each.

    `top` is the maximum number of slices, and `shown_how` contains the options `sort` and `min_rows`. The slices
    "(other)" and "(expired)", which combine rows whose own keys are not kept, are left out.
    """
    rows: dict[tuple[Any, ...], int] = {}
    for record in build_slice_records(piece, top, **shown_how):
        if not record["other"]:
            rows.setdefault(tuple(record["slice"].values()), record["rows"] or 0)
    return rows


def check_same_shards(sides: Mapping[str, Any], options: ComparisonOptions) -> None:
    """Raise UsageError if the differences between sides would have no valid intervals.

    Intervals require that both sides split their units, such as users, into the same shards, or that no unit has rows
    on both sides (`options.independent`). Also raise the error if a side has no metric in common with the control.
    """
    control = str(options.control)
    ours, control_metrics = find_sharded(sides[control]), collect_entries(sides[control])
    for name, side in sides.items():
        if name == control:
            continue
        if not control_metrics.keys() & collect_entries(side).keys():
            raise UsageError(
                f"{control} and {name} have no metric in common: {control} has {', '.join(control_metrics)}, and {name} "
                f"has {', '.join(collect_entries(side))}; compare files with the same metrics"
            )
        theirs = find_sharded(side)
        if options.independent or (ours and theirs and (ours.unit, ours.shards) == (theirs.unit, theirs.shards)):
            continue
        units, cure = f"{control} and {name} were counted without --unit", "--unit user_id"
        if sharded_side := ours or theirs:
            units = " and ".join(f"{n} was counted {_describe_shards(s)}" for n, s in ((control, ours), (name, theirs)))
            cure = f"--unit {sharded_side.unit} --shards {sharded_side.shards}"
        raise UsageError(
            f"{units}, so their units cannot be matched; count both with {cure}, or add --independent if no unit "
            f"(such as a user) is in both logs"
        )


def _describe_shards(collection: Any) -> str:
    return "without --unit" if collection is None else f"with --unit {collection.unit} --shards {collection.shards}"


def build_comparisons(
    result: Any, options: ComparisonOptions, arm: str | None = None, top: int | None = None, **shown_how: Any
) -> list[SideComparison]:
    """Return all comparisons within the result of one pass: for all rows first, then by slice and window.

    Parameters
    ----------
    result : MetricCollection, Sharded or Bundle
        The result of the pass.
    options : ComparisonOptions
        The options of the comparisons.
    arm : str, optional
        The column that contains the arms of an experiment. If passed, the sides are the arms, otherwise the models.
    top, **shown_how
        Which slices to show, as for `select_slices`.
    """
    order = partial(select_slices, top=top, **shown_how)
    parts = [piece for _, piece in split_pieces(result)]
    if arm is not None:
        comparisons = []
        for sliced in (p for p in parts if isinstance(p, Sliced) and p.by == (arm,)):
            windows = find_windows(sliced)
            comparisons.append(compare_arms(sliced if windows is None else sliced.across(windows.time), options, order))
            if isinstance(sliced.inner, Windowed):
                comparisons.append(compare_arms(sliced, options, order))
        return [comparisons[0], *(replace(one, overall=comparisons[0]) for one in comparisons[1:])]
    comparisons = []
    for piece in parts:
        windows = find_windows(piece) if isinstance(piece, AxisWrapper) else None
        without_windows = (
            piece.across(windows.time) if isinstance(piece, AxisWrapper) and windows is not None else piece
        )
        comparisons += [
            compare_models(without_windows, group, options, order) for group in group_comparable_tasks(piece)
        ]
    of_all_rows = [one for one in comparisons if not one.title]
    overall_of = {tuple(one.sides): one for one in of_all_rows}
    return [*of_all_rows, *(replace(one, overall=overall_of.get(tuple(one.sides))) for one in comparisons if one.title)]


# -- Options --------------------------------------------------------------------------------------------------


def parse_margins(texts: Iterable[str]) -> dict[str, float]:
    """Parse the values of --guardrail, such as `calibration=0.02`, into a dict from metric names to margins."""
    margins = {}
    for one in texts:
        # Split at the last "=", because the name of a metric, such as log_loss:eps=1e-6, may itself contain "=".
        name, _, margin = one.rpartition("=")
        try:
            margins[name.strip()] = float(margin)
        except ValueError:
            raise UsageError(
                f"--guardrail {one}: expected METRIC=MARGIN, such as calibration=0.02 if calibration may become 2 % worse"
            ) from None
        if not 0.0 <= margins[name.strip()] < 1e6:
            raise UsageError(f"--guardrail {one}: expected a margin of 0 or more, such as 0.02 for 2 %")
    return margins


def parse_directions(texts: Iterable[str]) -> dict[str, str]:
    """Parse the values of --better, such as `ctr=high`, into a dict from metric names to "high" or "low"."""
    directions = {}
    for one in texts:
        name, _, word = one.rpartition("=")
        if word not in ("high", "low"):
            raise UsageError(
                f"--better {one}: expected METRIC=high or METRIC=low, such as ctr=high if high values are better"
            )
        directions[name.strip()] = word
    return directions


def expand_metric_names(options: ComparisonOptions, names: Iterable[str]) -> ComparisonOptions:
    """Return the options with full metric names, such as `ctr/auc` for `auc`.

    A name is left unchanged if no metric, or more than one, ends with it.
    """

    def full(name: str) -> str:
        ends = [one for one in names if one.rpartition("/")[2] == name]
        return ends[0] if name not in names and len(ends) == 1 else name

    return replace(
        options,
        primary=full(options.primary) if options.primary else None,
        guardrails={full(name): margin for name, margin in options.guardrails.items()},
        better={full(name): word for name, word in options.better.items()},
    )


def check_metric_names(options: ComparisonOptions, metrics: Mapping[str, Any], side: str = "") -> None:
    """Raise UsageError if a metric in an option is unknown, needs --better, or has --better although it needs none.

    `metrics` contains the known metrics, keyed by name, and `side` is the name of the side that they belong to.
    """
    for name in options.names:
        if name not in metrics:
            if several := [one for one in metrics if one.rpartition("/")[2] == name]:
                raise UsageError(f"{name}: expected the metric of one model; choose from {', '.join(several)}")
            raise unknown_name_error("metric", name, list(metrics), side)
    for name in options.better:
        if (best := metrics[name].about.best) is not None:
            raise UsageError(
                f"--better {name}: it is already known which values of this metric are better ({best}); remove the option"
            )
    for option, names in (
        ("--primary", [options.primary] if options.primary else []),
        ("--guardrail", list(options.guardrails)),
    ):
        for name in names:
            if (
                metrics[name].about.best is None
                and name not in options.better
                and (options.has_scorecard or option == "--guardrail")
            ):
                raise UsageError(
                    f"{option} {name}: it is unknown whether high or low values of this metric are better; add --better "
                    f"{name}=high or --better {name}=low"
                )
