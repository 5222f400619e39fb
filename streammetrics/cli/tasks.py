"""Build the metrics for one pass over a log from command-line options or from a task file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from streammetrics.cli.log_options import split_columns
from streammetrics.cli.messages import UsageError, unknown_name_error
from streammetrics.cli.models import LoggedModel, find_model
from streammetrics.cli.specs import find_at_setting, make_metrics
from streammetrics.cli.task_types import TASK_TYPES
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric import METRICS, Metric
from streammetrics.collect.task import Task

__all__ = ["TaskSpec", "make_collection", "parse_classes", "parse_cutoffs", "read_task_file"]

_CORRECTS = ("score", "rows", "both")
_SCALES = ("probability", "logit", "real")
_FILE_OPTIONS: dict[str, Any] = {
    "unit": str,
    "shards": int,
    "missing_unit": str,
    "window": str,
    "time": str,
    "arm": str,
    "control": str,
    "primary": str,
    "guardrails": dict,
    "better": dict,
    "shares": dict,
}
"""Keys of a task file that apply to all its tasks, and their types."""
_TEXT_KEYS = ("label", "value", "weight", "scale", "corrects", "task_type", "query", "group")


@dataclass(frozen=True)
class TaskSpec:
    """A task, as defined by options or a task file.

    Parameters
    ----------
    label : str, optional
        The column of labels. Metrics such as the mean need no labels.
    score : tuple of str
        The score column of each model. A pattern such as `score_*` combines several columns into a matrix.
    pred : tuple of str
        The columns of decisions, such as predicted classes, instead of scores.
    task_type : str
        One of `task_types.TASK_TYPES`.
    classes : int or tuple, optional
        The number of classes (or labels), or the class names.
    value : str, optional
        The column of values, such as revenue, for metrics such as the mean.
    query, group : str, optional
        The columns whose values identify a query or a user. Several columns are separated by commas.
    k : tuple of int, optional
        The cutoffs of ranking metrics, such as 10 for NDCG@10; by default, those of the task type.
    weight : str, optional
        The column of weights.
    where : tuple of str
        Conditions on rows: 0/1 columns, and comparisons such as `price>0`.
    metrics : tuple of str, optional
        Specifications of metrics for `make_metrics`.
    scale : str
        The scale of the scores.
    bits : int, optional
        The resolution of histograms.
    negative_rate : float, optional
        The fraction of negatives kept in the log.
    corrects : str, optional
        What to correct for the dropped negatives: "score", "rows" (the row weights), or "both".
    labels : tuple, optional
        The negative and the positive label, if they are not 0 and 1.
    pos_label : optional
        The positive label, if it is not 1; all other labels are negative.
    report : bool
        Whether to add the metrics for the charts of a report.
    """

    label: str | None = None
    score: tuple[str, ...] = ()
    pred: tuple[str, ...] = ()
    task_type: str = "binary"
    classes: int | tuple[Any, ...] | None = None
    value: str | None = None
    query: str | None = None
    group: str | None = None
    k: tuple[int, ...] | None = None
    weight: str | None = None
    where: tuple[str, ...] = ()
    metrics: tuple[str, ...] | None = None
    scale: str = "probability"
    bits: int | None = None
    negative_rate: float | None = None
    corrects: str | None = None
    labels: tuple[Any, ...] | None = None
    pos_label: Any = None
    report: bool = False

    def check(self) -> None:
        """Raise UsageError if a setting has an unknown value, or if settings contradict each other."""
        if self.task_type not in TASK_TYPES:
            raise unknown_name_error("task type", self.task_type, TASK_TYPES)
        if self.scale not in _SCALES:
            raise unknown_name_error("scale", self.scale, _SCALES)
        if self.corrects is not None and self.corrects not in _CORRECTS:
            raise UsageError(
                f"corrects: expected {', '.join(_CORRECTS[:-1])} or {_CORRECTS[-1]}, found {self.corrects!r}"
            )
        if (self.negative_rate is None) != (self.corrects is None):
            raise UsageError(
                "--negative-rate needs --corrects (score, rows or both)"
                if self.corrects is None
                else "--corrects needs --negative-rate, the share of the negatives that the log kept, such as 0.1"
            )
        if self.scale == "real" and self.corrects in ("score", "both"):
            raise UsageError(
                f"--corrects {self.corrects}: expected probabilities or logits, found --scale real; use --corrects rows"
            )
        if self.score and self.pred:
            raise UsageError(
                "--score and --pred cannot be combined in one task; define two tasks in a task file (--task)"
            )
        for models in (self.score, self.pred):
            if len(set(models)) != len(models):
                raise UsageError(
                    f"expected each column of scores once, found {', '.join(models)}; remove the repeated column"
                )
        if self.task_type == "ranking" and self.query is None:
            raise UsageError("--task-type ranking needs the column of queries; name it with --query")
        several = TASK_TYPES[self.task_type].output_kind
        if self.classes is not None and not several:
            raise UsageError(
                f"--classes needs --task-type multiclass or multilabel, found {self.task_type}; set --task-type, or "
                f"remove --classes"
            )
        if several == "labels" and isinstance(self.classes, tuple):
            raise UsageError(
                "--classes: expected the number of labels for --task-type multilabel, such as 14, found names"
            )
        if several and not (self.score or self.pred):
            raise UsageError(
                f"--task-type {self.task_type} needs scores of all {several}; name their columns, such as --score 'p_*', "
                f"or a column of lists, or name a column of decisions with --pred"
            )
        if several and self.negative_rate is not None:
            raise UsageError(
                f"--negative-rate needs one label of 0 or 1 in each row, found --task-type {self.task_type}; remove "
                f"--negative-rate"
            )

    def tasks(self, schema: Any = None) -> dict[str, Task]:
        """Return a task for each model, keyed by the model's name.

        Without columns of scores or decisions, the only task has the name "".

        Parameters
        ----------
        schema : pyarrow.Schema, optional
            The columns of the log. They determine which columns match a pattern and how many classes there are.
        """
        self.check()
        patterns = self.pred or self.score
        models = [find_model(name, schema) for name in patterns]
        # A model is named after the prefix of its pattern. If two patterns have the same prefix, the patterns become the
        # names of the models.
        if len({model.name for model in models}) < len(models):
            models = [LoggedModel(name, model.column) for name, model in zip(patterns, models, strict=True)]
        if isinstance(self.classes, tuple):
            models = [model.order_by_class(self.classes) for model in models]
        label = (
            find_model(self.label, schema).column
            if self.label is not None and TASK_TYPES[self.task_type].output_kind == "labels"
            else self.label
        )
        if not models:
            metrics = self._make_metrics({}, schema)
            _check_needs_no_score(metrics)
            return {"": self._make_task(metrics, label, None, schema)}
        return {
            m.name: self._make_task(self._make_metrics(self._class_settings(m, schema), schema), label, m, schema)
            for m in models
        }

    def filter(self, schema: Any = None) -> Any:
        """Return the row filter for `evaluate`.

        Return None if there are no conditions, or if the only one is a 0/1 column, which the task reads directly.
        """
        # This import loads pyarrow, which is slow, so it is not at the top of the module.
        from streammetrics.io.row_filter import parse_filter

        row_filter = parse_filter(self.where, () if schema is None else schema.names)
        for one in row_filter.conditions if row_filter is not None and schema is not None else ():
            if not one.sign and one.column in schema.names and "string" in str(schema.field(one.column).type):
                raise UsageError(
                    f"--where {one.column}: expected a 0/1 column or a comparison, found a column of text; compare it "
                    f"with a value: '{one.column}=VALUE'"
                )
        return (
            None
            if row_filter is None or not (row_filter.conditions[1:] or row_filter.conditions[0].sign)
            else row_filter
        )

    def _class_settings(self, model: LoggedModel, schema: Any) -> dict[str, Any]:
        """Return the metric setting for the classes or labels of a model, such as `{"num_classes": 3}`.

        Return an empty dict for a task type without classes. Raise UsageError if the number of classes is unknown.
        """
        what = TASK_TYPES[self.task_type].output_kind
        width = None if self.pred and what == "classes" else model.count_outputs(schema)
        class_count = len(self.classes) if isinstance(self.classes, tuple) else self.classes
        if width is not None and class_count is not None and width != class_count:
            raise UsageError(
                f"{model.name}: expected {class_count} scores in each row, as --classes says, found {width}; correct "
                f"--classes or --score"
            )
        if what == "classes" and isinstance(self.classes, tuple):
            return {"labels": self.classes}
        if what == "classes" and self.pred and self.classes is None:
            return {"labels": "discover"}
        if what and not (width or class_count):
            raise UsageError(f"{model.name}: the number of {what} is unknown; set it with --classes")
        return {f"num_{what}": width or class_count} if what else {}

    def _make_metrics(self, several: dict[str, Any], schema: Any) -> dict[str, Metric[Any, Any]]:
        kind = TASK_TYPES[self.task_type]
        shared: dict[str, Any] = several | ({"bits": self.bits} if self.bits is not None else {})
        if self.pred:
            # With threshold=None, a metric reads decisions (`y_pred`), not scores.
            shared["threshold"] = None
        default_metrics, cutoffs = kind.decision_metrics if self.pred else kind.default_metrics, self.k or kind.cutoffs
        if self.label is None:
            default_metrics = ("mean",)
        if not default_metrics and self.metrics is None:
            raise UsageError(f"--pred: --task-type {self.task_type} has no decisions; name the column with --score")
        if self.group is not None and self.task_type == "binary" and self.score:
            default_metrics += ("group_auc",)
        if self.report and self.label is not None:
            default_metrics += tuple(
                name for name in kind.report_metrics if name.partition("@")[2] not in map(str, cutoffs)
            )
        metrics = make_metrics(
            self.metrics, default_metrics=default_metrics, cutoffs=cutoffs, scale=self.scale, **shared
        )
        needs = {name: {need.role for need in metric.make_state().needs()} for name, metric in metrics.items()}
        # With several classes, the class with the highest score is predicted, and no threshold is used.
        thresholds = {
            name: metric.settings["threshold"]
            for name, metric in metrics.items()
            if kind.output_kind != "classes" and "y_score" in needs[name]
            if metric.settings.get("threshold") is not None
        }
        for name, threshold in thresholds.items():
            # Use the scale of the metric, because its specification may set a different scale from that of the task.
            if metrics[name].settings.get("scale", self.scale) == "probability":
                self._check_threshold(name, type(metrics[name]), threshold)
        labelled = [name for name, roles in needs.items() if "y_true" in roles]
        if self.label is None and labelled and schema is not None and "y_true" not in schema.names:
            raise UsageError(f"{', '.join(labelled)}: expected a column of labels; name it with --label")
        for role, whose in (("group", "users"), ("query", "queries"), ("value", "values")):
            readers, column = [name for name, roles in needs.items() if role in roles], getattr(self, role)
            if column is not None and not readers:
                hint = "set --task-type ranking"
                if role == "group":
                    hint = "add group_auc to --metrics"
                elif role == "value":
                    hint = "add a metric of values, such as mean or quantile, to --metrics"
                elif self.task_type == "ranking":
                    hint = "add a metric of lists, such as ndcg, to --metrics"
                raise UsageError(
                    f"--{role} {column}: none of the metrics {', '.join(metrics)} reads this column; {hint}, or remove "
                    f"--{role}"
                )
            if column is None and readers and schema is not None and role not in schema.names:
                raise UsageError(f"{', '.join(readers)}: expected a column of {whose}; name it with --{role}")
        if self.k and not any(find_at_setting(type(metric)) == "k" for metric in metrics.values()):
            raise UsageError(
                f"--k {','.join(map(str, self.k))}: none of the metrics {', '.join(metrics)} has a cutoff; remove --k, or "
                f"add a metric such as ndcg"
            )
        depend_on_scale = thresholds or any("scale" in metric.settings for metric in metrics.values())
        if self.scale != "probability" and not depend_on_scale:
            raise UsageError(
                f"--scale {self.scale}: none of the metrics {', '.join(metrics)} depends on the scale of scores; remove "
                f"--scale"
            )
        return metrics

    def _check_threshold(self, name: str, metric: type[Metric[Any, Any]], threshold: float) -> None:
        """Raise UsageError if a threshold for probabilities is outside [0, 1], such as 20 in recall@20."""
        if 0 <= threshold <= 1:
            return
        hint = "set a threshold in [0, 1]"
        tag = metric.about.tag
        if f"{tag}_at_k" in METRICS and threshold > 0 and threshold == int(threshold):
            task_type = "" if self.task_type == "ranking" else "--task-type ranking --query COLUMN "
            at_k = f"{tag}_at_k@{int(threshold)}"
            hint = f"for the {tag} among the first {int(threshold)} of each list, use {task_type}--metrics {at_k}"
        raise UsageError(
            f"{name}: {threshold:g} is a threshold, but scores are in [0, 1]; {hint}; for other scores, set --scale logit "
            f"or --scale real"
        )

    def convert_pos_label(self, schema: Any) -> Any:
        """Convert the positive label from text to the type of the label column."""
        is_text = isinstance(self.pos_label, str)
        if not is_text or schema is None or self.label is None or self.label not in schema.names:
            return self.pos_label
        from streammetrics.io.row_filter import Condition
        from streammetrics.io.sources import LogError

        kind = schema.field(self.label).type
        try:
            return Condition(self.label, "=", self.pos_label).parse_value(getattr(kind, "value_type", kind))
        except LogError:
            raise UsageError(
                f"--pos-label {self.pos_label}: expected a value of type {kind}, as in column {self.label!r}; "
                f"--type {self.label}=string reads the column as text"
            ) from None

    def check_unread_columns(self, names: Collection[str], read: Collection[str]) -> None:
        """Raise UsageError if a --score or --pred column that no metric reads is missing from the log.

        Columns that metrics read are checked later, when the log is read. `names` contains the columns of the log, and
        `read` contains the columns that metrics read.
        """
        for column in (*self.score, *self.pred):
            if column not in (*names, *read) and not re.search(r"[*?]", column):
                raise unknown_name_error("column", column, names)

    def _make_task(
        self, metrics: dict[str, Metric[Any, Any]], label: Any, model: LoggedModel | None, schema: Any
    ) -> Task:
        columns = (
            {"y_pred" if self.pred else TASK_TYPES[self.task_type].role: model.column} if model is not None else {}
        )
        names = () if schema is None else schema.names
        keys = {role: _parse_key(getattr(self, role), names) for role in ("query", "group")}
        try:
            return Task(
                metrics,
                y_true=label,
                value=self.value,
                sample_weight=self.weight,
                where=row_filter.name if (row_filter := self.filter(schema)) else next(iter(self.where), None),
                labels=self.labels,
                pos_label=self.convert_pos_label(schema),
                negative_rate=self.negative_rate,
                corrects=self.corrects,
                scale="logit" if self.scale == "logit" else "probability",
                **columns,
                **keys,  # type: ignore[arg-type]
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


def _parse_key(text: str | None, columns: Collection[str]) -> str | tuple[str, ...] | None:
    names = tuple(name for name in split_columns(text or "", columns) if name)
    return names if len(names) > 1 else names[0] if names else None


def _check_needs_no_score(metrics: dict[str, Metric[Any, Any]]) -> None:
    need = [n for n, m in metrics.items() if {"y_score", "y_pred"} & {need.role for need in m.make_state().needs()}]
    if need:
        raise UsageError(f"{', '.join(need)}: expected a column of scores; name it with --score")


def make_collection(specs: dict[str, TaskSpec], on_invalid: str, schema: Any = None) -> MetricCollection:
    """Create the metrics of all tasks, with short unique names: "auc", "pctr_b/auc", "ctr/auc" or "ctr/pctr_b/auc"."""
    if on_invalid not in ("raise", "drop"):
        raise UsageError(f"on_invalid: expected raise or drop, found {on_invalid!r}")
    tree: dict[str, Any] = {}
    for name, spec in specs.items():
        try:
            tasks = spec.tasks(schema)
        except UsageError as error:
            raise UsageError(f"task {name}: {error}" if name else str(error)) from None
        nested: Any = tasks if len(tasks) > 1 else next(iter(tasks.values()))
        tree[name] = nested
    try:
        return MetricCollection(tree.get("", tree), on_invalid=on_invalid)
    except ValueError as error:
        raise UsageError(str(error)) from None


class TaskFile(NamedTuple):
    """The content of a task file.

    Parameters
    ----------
    specs : dict of str to TaskSpec
        The tasks.
    by : list of str
        The sets of slicing columns, such as "country,device".
    options : dict
        Options for units, windows and comparisons, keyed by the names in `_FILE_OPTIONS`.
    """

    specs: dict[str, TaskSpec]
    by: list[str]
    options: dict[str, Any]


def read_task_file(path: str, bits: int | None) -> TaskFile:
    """Read tasks, slicing columns and comparison options from a TOML file.

    ::

        by = ["country,device"]
        unit = "user_id"                    # all of these are optional, and command-line options override them
        arm = "variant"
        control = "A"
        primary = "ctr"
        better = { ctr = "high" }
        guardrails = { calibration = 0.02 }
        shares = { A = 50, B = 50 }
        window = "1d"
        time = "ts"

        [tasks.ctr]
        label = "click"
        score = ["pctr_a", "pctr_b"]        # or one column
        metrics = ["auc", "log_loss"]       # all keys but label (or value) are optional
        negative_rate = 0.1
        corrects = "both"

        [tasks.search]
        task_type = "ranking"
        label = "grade"
        score = "score"
        query = "query_id"
        k = [5, 10]

        [tasks.species]
        task_type = "multiclass"
        label = "species"
        score = "p_*"                       # p_cat, p_dog
        classes = ["cat", "dog"]            # or their number

    Raises
    ------
    UsageError
        The file is not valid TOML, or contains an unknown key or an invalid value.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a TOML file; {error}") from None
    for key in content:
        if key not in ("by", "tasks", *_FILE_OPTIONS):
            raise UsageError(f"{path}: {unknown_name_error('key', key, ('by', 'tasks', *_FILE_OPTIONS))}")
    tasks = content.get("tasks")
    if not isinstance(tasks, dict) or not all(isinstance(t, dict) for t in tasks.values()) or not tasks:
        raise UsageError(
            f"{path}: expected at least one task; write [tasks.NAME], and below it label = ... and score = ..."
        )
    by = content.get("by", [])
    by = [by] if isinstance(by, str) else by
    if not isinstance(by, list) or not all(isinstance(one, str) for one in by):
        raise UsageError(f'{path}: by: expected a list such as ["variant", "country,device"], found {by!r}')
    specs = {name: _make_spec(f"{path}: task {name}", entries, bits) for name, entries in tasks.items()}
    return TaskFile(
        specs, by, {key: _check_file_option(path, key, content[key]) for key in _FILE_OPTIONS if key in content}
    )


def _check_file_option(path: str, key: str, value: Any) -> Any:
    """Return the value of an option that applies to a whole task file, in the form that the command line uses.

    Raise UsageError if the value has the wrong type. A table becomes a list such as `["calibration=0.02"]`.
    """
    kind = _FILE_OPTIONS[key]
    option = str(value) if key == "window" and type(value) is int else value
    if not isinstance(option, kind):
        expected = {str: "a string", int: "a number", dict: "a table such as { calibration = 0.02 }"}[kind]
        raise UsageError(f"{path}: {key}: expected {expected}, found {value!r}")
    return [f"{name}={one}" for name, one in option.items()] if isinstance(option, dict) else option


def _make_spec(place: str, entries: dict[str, Any], bits: int | None) -> TaskSpec:
    keys = [f.name for f in fields(TaskSpec) if f.name != "report"]
    for key in entries:
        if key not in keys:
            raise UsageError(f"{place}: {unknown_name_error('key', key, keys)}")
    if not {"label", "value"} & set(entries):
        raise UsageError(f"{place}: expected a column of labels; add label = ...")
    settings = {"bits": bits} | entries
    for key in _TEXT_KEYS:
        if key in entries and not isinstance(entries[key], str):
            raise UsageError(f"{place}: {key}: expected a string, found {entries[key]!r}")
    for key in ("score", "pred", "metrics", "where"):
        if key in entries:
            settings[key] = _check_texts(place, key, entries[key])
    if isinstance(entries.get("metrics"), str):
        settings["metrics"] = parse_names(entries["metrics"])
    if "k" in entries:
        settings["k"] = _check_cutoffs(place, entries["k"])
    for key, kinds in (("bits", (int,)), ("negative_rate", (int, float))):
        if key in entries and (not isinstance(entries[key], kinds) or isinstance(entries[key], bool)):
            raise UsageError(f"{place}: {key}: expected a number, found {entries[key]!r}")
    if "labels" in entries:
        if not isinstance(entries["labels"], list):
            raise UsageError(
                f"{place}: labels: expected a list of the negative and the positive label, found {entries['labels']!r}"
            )
        settings["labels"] = tuple(entries["labels"])
    if "classes" in entries:
        settings["classes"] = _check_classes(place, entries["classes"])
    return TaskSpec(**settings)


def parse_classes(text: str | None) -> int | tuple[Any, ...] | None:
    """Parse the value of --classes: either the number of classes, such as `10`, or their names, such as `cat,dog`."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    return _check_classes("--classes", int(text) if text.strip().isdigit() else words)


def _check_classes(place: str, value: Any) -> int | tuple[Any, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        return value
    if isinstance(value, list) and len(value) > 1:
        are_integers = all(isinstance(v, str) and v.lstrip("-").isdigit() for v in value)
        return tuple(map(int, value)) if are_integers else tuple(value)
    raise UsageError(
        f"{place}: expected the number of classes (2 or more), or the names of two or more classes, found {value!r}"
    )


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a list of names such as `auc,log_loss`."""
    return tuple(name for name in map(str.strip, text.split(",")) if name)


def parse_cutoffs(text: str | None) -> tuple[int, ...] | None:
    """Parse cutoffs such as `5,10`."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    return _check_cutoffs("--k", [int(word) if word.isdigit() else word for word in words])


def _check_cutoffs(place: str, value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in values):
        raise UsageError(f"{place}: expected a positive integer k, or a list of positive integers, found {value!r}")
    return tuple(values)


def _check_texts(place: str, key: str, value: Any) -> tuple[str, ...]:
    values: Sequence[Any] = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise UsageError(f"{place}: {key}: expected a string or a list of strings, found {value!r}")
    return tuple(values)
