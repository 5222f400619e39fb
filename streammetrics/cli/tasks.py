"""From options, or from a task file, to the metrics of one pass."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from streammetrics.cli.messages import UsageError, nearest
from streammetrics.cli.models import LoggedModel, find_model
from streammetrics.cli.reading import key_columns
from streammetrics.cli.specs import at_setting, make_metrics
from streammetrics.cli.types import TYPES
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric import Metric
from streammetrics.collect.task import Task

__all__ = ["TaskSpec", "make_collection", "read_classes", "read_cutoffs", "read_task_file"]

_CORRECTS = ("score", "rows", "both")
_SCALES = ("probability", "logit", "real")
_HOW: dict[str, Any] = {
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
}
"""What concerns all tasks of a file, and its type."""
_TEXTS = ("label", "weight", "scale", "corrects", "task_type", "query", "group")


@dataclass(frozen=True)
class TaskSpec:
    """One task, with the names that options and task files share.

    Parameters
    ----------
    label : str
        The column of labels.
    score : tuple of str
        Columns of scores: each is a task of its own. A pattern such as `score_*` stands for a matrix of several.
    pred : tuple of str
        Columns of decisions, in the place of scores.
    task_type : str
        One of `types.TYPES`.
    classes : int or tuple, optional
        How many classes (or labels) there are, or what the classes are called.
    query, group : str, optional
        The columns of queries and of users; a comma makes a key of several.
    k : tuple of int, optional
        Cut-offs for the metrics that have one.
    weight : str, optional
        The column of weights.
    where : tuple of str
        Which rows count: 0/1 columns, and comparisons such as `price>0`.
    metrics : tuple of str, optional
        As `make_metrics` takes them.
    scale : str
        What the scores are.
    bits : int, optional
        Resolution of histograms.
    negative_rate : float, optional
        Share of negatives that the log kept.
    corrects : str, optional
        What of it is undone.
    labels, pos_label : optional
        What labels are called, if not 0 and 1.
    report : bool
        Whether the metrics that pictures read are wanted, too.
    """

    label: str
    score: tuple[str, ...] = ()
    pred: tuple[str, ...] = ()
    task_type: str = "binary"
    classes: int | tuple[Any, ...] | None = None
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
        """Raise UsageError where settings contradict one another."""
        if self.task_type not in TYPES:
            raise nearest("type of task", self.task_type, TYPES)
        if self.scale not in _SCALES:
            raise nearest("scale", self.scale, _SCALES)
        if self.corrects is not None and self.corrects not in _CORRECTS:
            raise nearest("way to correct", self.corrects, _CORRECTS)
        if (self.negative_rate is None) != (self.corrects is None):
            raise UsageError("--negative-rate needs --corrects (score, rows or both), and the other way")
        if self.scale == "real" and self.corrects in ("score", "both"):
            raise UsageError("scores of scale real cannot be corrected; probabilities and logits can")
        if self.score and self.pred:
            raise UsageError("a task has scores or decisions (--pred); make two tasks for both")
        for models in (self.score, self.pred):
            if len(set(models)) != len(models):
                raise UsageError(f"a score is named twice: {', '.join(models)}")
        if self.task_type == "ranking" and self.query is None:
            raise UsageError("a ranking needs the column of queries: --query")
        several = TYPES[self.task_type].several
        if self.classes is not None and not several:
            raise UsageError(f"classes are for --task-type multiclass or multilabel, not {self.task_type}")
        if several == "labels" and isinstance(self.classes, tuple):
            raise UsageError("of labels only their number is asked: --classes 14")
        if several and not (self.score or self.pred):
            raise UsageError(f"{several} need a score of each (--score 'p_*', or a column of lists), or --pred")
        if several and self.negative_rate is not None:
            raise UsageError("a negative rate is for labels of 0 and 1, one a row")

    def tasks(self, schema: Any = None) -> dict[str, Task]:
        """Return the task of every model; "" stands for none.

        Parameters
        ----------
        schema : pyarrow.Schema, optional
            The columns of the log: what patterns and the number of classes are found in.
        """
        self.check()
        asked = self.pred or self.score
        models = [find_model(name, schema) for name in asked]
        if len({model.name for model in models}) < len(models):  # of patterns that begin alike
            models = [LoggedModel(name, model.column) for name, model in zip(asked, models, strict=True)]
        if isinstance(self.classes, tuple):
            models = [model.ordered(self.classes) for model in models]
        label = find_model(self.label, schema).column if TYPES[self.task_type].several == "labels" else self.label
        if not models:
            metrics = self._metrics({}, schema)
            _check_scoreless(metrics)
            return {"": self._task(metrics, label, None, schema)}
        return {m.name: self._task(self._metrics(self._several(m, schema), schema), label, m, schema) for m in models}

    def filter(self, schema: Any = None) -> Any:
        """Return what says which rows count, as `evaluate` takes it; None where that is no comparison."""
        from streammetrics.io.where import read_where  # which loads pyarrow

        found = read_where(self.where, () if schema is None else schema.names)
        for one in found.conditions if found is not None and schema is not None else ():
            if not one.sign and one.column in schema.names and "string" in str(schema.field(one.column).type):
                raise UsageError(f"--where {one.column}: is a column of texts; say which: '{one.column}=VALUE'")
        return None if found is None or not (found.conditions[1:] or found.conditions[0].sign) else found

    def _several(self, model: LoggedModel, schema: Any) -> dict[str, Any]:
        """Return the setting that says which classes or labels there are."""
        what = TYPES[self.task_type].several
        width = None if self.pred and what == "classes" else model.width(schema)
        known = len(self.classes) if isinstance(self.classes, tuple) else self.classes
        if width is not None and known is not None and width != known:
            raise UsageError(f"{model.name}: there are {width} columns of scores for {known} {what}")
        if what == "classes" and isinstance(self.classes, tuple):
            return {"labels": self.classes}
        if what == "classes" and self.pred and self.classes is None:
            return {"labels": "discover"}
        if what and not (width or known):
            raise UsageError(f"{model.name}: how many {what} are there? Give --classes")
        return {f"num_{what}": width or known} if what else {}

    def _metrics(self, several: dict[str, Any], schema: Any) -> dict[str, Metric[Any, Any]]:
        kind = TYPES[self.task_type]
        shared: dict[str, Any] = several | ({"bits": self.bits} if self.bits is not None else {})
        if self.pred:
            shared["threshold"] = None  # which reads y_pred
        screen, ks = kind.hard if self.pred else kind.screen, self.k or kind.ks
        if not screen and self.metrics is None:
            raise UsageError(f"--pred: --task-type {self.task_type} has no decisions; name its column by --score")
        if self.group is not None and self.task_type == "binary" and self.score:
            screen += ("group_auc",)
        if self.report:
            screen += tuple(name for name in kind.drawn if name.partition("@")[2] not in map(str, ks))
        made = make_metrics(self.metrics, screen=screen, ks=ks, scale=self.scale, **shared)
        needs = {name: {need.role for need in metric.make_state().needs()} for name, metric in made.items()}
        for role, whose in (("group", "users"), ("query", "queries")):
            readers, given = [name for name, roles in needs.items() if role in roles], getattr(self, role)
            if given is not None and not readers:
                hint = "group_auc does" if role == "group" else "those of --task-type ranking do"
                raise UsageError(f"--{role} {given}: none of {', '.join(made)} reads it; {hint}")
            if given is None and readers and schema is not None and role not in schema.names:
                raise UsageError(f"{', '.join(readers)}: which column is of {whose}? Give --{role}")
        if self.k and not any(at_setting(type(metric)) == "k" for metric in made.values()):
            raise UsageError(f"--k {','.join(map(str, self.k))}: none of {', '.join(made)} has a cut-off")
        if self.scale != "probability" and not any("scale" in metric.settings for metric in made.values()):
            raise UsageError(f"--scale {self.scale}: none of {', '.join(made)} reads scores on a scale")
        return made

    def positive(self, schema: Any) -> Any:
        """Return the positive label as the column holds it; `--pos-label` gives it as text."""
        if not isinstance(self.pos_label, str) or schema is None or self.label not in schema.names:
            return self.pos_label
        from streammetrics.io.sources import LogError
        from streammetrics.io.where import Condition

        kind = schema.field(self.label).type
        try:
            return Condition(self.label, "=", self.pos_label).read_as(getattr(kind, "value_type", kind))
        except LogError:
            raise UsageError(
                f"--pos-label {self.pos_label}: expected a value of type {kind}, as in column {self.label!r}; "
                f"--type {self.label}=string reads the column as text"
            ) from None

    def check_unread(self, names: Collection[str], read: Collection[str]) -> None:
        """Raise where a column of scores or decisions is not there that no metric reads: of others reading says it."""
        for given in (*self.score, *self.pred):
            if given not in (*names, *read) and not re.search(r"[*?]", given):
                raise nearest("column", given, names)

    def _task(self, metrics: dict[str, Metric[Any, Any]], label: Any, model: LoggedModel | None, schema: Any) -> Task:
        columns = {"y_pred" if self.pred else TYPES[self.task_type].role: model.column} if model is not None else {}
        known = () if schema is None else schema.names
        keys = {role: _key(getattr(self, role), known) for role in ("query", "group")}
        try:
            return Task(
                metrics,
                y_true=label,
                sample_weight=self.weight,
                where=found.name if (found := self.filter(schema)) else next(iter(self.where), None),
                labels=self.labels,
                pos_label=self.positive(schema),
                negative_rate=self.negative_rate,
                corrects=self.corrects,
                scale="logit" if self.scale == "logit" else "probability",
                **columns,
                **keys,  # type: ignore[arg-type]
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


def _key(given: str | None, known: Collection[str]) -> str | tuple[str, ...] | None:
    names = tuple(name for name in key_columns(given or "", known) if name)
    return names if len(names) > 1 else names[0] if names else None


def _check_scoreless(metrics: dict[str, Metric[Any, Any]]) -> None:
    need = [n for n, m in metrics.items() if {"y_score", "y_pred"} & {need.role for need in m.make_state().needs()}]
    if need:
        raise UsageError(f"{', '.join(need)} need a score: name its column")


def make_collection(specs: dict[str, TaskSpec], on_invalid: str, schema: Any = None) -> MetricCollection:
    """Make the metrics of all tasks: named "auc", "pctr_b/auc", "ctr/auc" or "ctr/pctr_b/auc", as short as is clear."""
    if on_invalid not in ("raise", "drop"):
        raise nearest("way to treat bad rows", on_invalid, ("raise", "drop"))
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
    """What a task file says.

    Parameters
    ----------
    specs : dict of str to TaskSpec
        The tasks.
    by : list of str
        The slices.
    how : dict
        Units, windows, and how models or arms are compared: by the names of `_HOW`.
    """

    specs: dict[str, TaskSpec]
    by: list[str]
    how: dict[str, Any]


def read_task_file(path: str, bits: int | None) -> TaskFile:
    """Read tasks, the slices they are wanted by, and how they are compared, from a TOML file.

    ::

        by = ["country,device"]
        unit = "user_id"                    # all of these may be left out, and options go before them
        arm = "variant"
        control = "A"
        primary = "ctr"
        better = { ctr = "high" }
        guardrails = { calibration = 0.02 }
        window = "1d"
        time = "ts"

        [tasks.ctr]
        label = "click"
        score = ["pctr_a", "pctr_b"]        # or one
        metrics = ["auc", "log_loss"]       # all keys but label may be left out
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
        The file is not TOML, or says something unknown.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    for key in content:
        if key not in ("by", "tasks", *_HOW):
            raise UsageError(f"{path}: {nearest('key', key, ('by', 'tasks', *_HOW))}")
    tasks = content.get("tasks")
    if not isinstance(tasks, dict) or not all(isinstance(t, dict) for t in tasks.values()) or not tasks:
        raise UsageError(f"{path}: no task; write [tasks.NAME] and below it label = ..., score = ...")
    by = content.get("by", [])
    by = [by] if isinstance(by, str) else by
    if not isinstance(by, list) or not all(isinstance(one, str) for one in by):
        raise UsageError(f'{path}: by is a list such as ["variant", "country,device"], not {by!r}')
    specs = {name: _spec(f"{path}: task {name}", given, bits) for name, given in tasks.items()}
    return TaskFile(specs, by, {key: _checked(path, key, content[key]) for key in _HOW if key in content})


def _checked(path: str, key: str, value: Any) -> Any:
    """A setting that concerns all tasks."""
    kind = _HOW[key]
    found = str(value) if key == "window" and type(value) is int else value
    if not isinstance(found, kind):
        wanted = {str: "a text", int: "a number", dict: "a table such as { calibration = 0.02 }"}[kind]
        raise UsageError(f"{path}: {key} is {wanted}, not {value!r}")
    return [f"{name}={one}" for name, one in found.items()] if isinstance(found, dict) else found


def _spec(where: str, given: dict[str, Any], bits: int | None) -> TaskSpec:
    known = [f.name for f in fields(TaskSpec) if f.name != "report"]
    for key in given:
        if key not in known:
            raise UsageError(f"{where}: {nearest('key', key, known)}")
    if "label" not in given:
        raise UsageError(f"{where}: which column is the label?")
    made = {"bits": bits} | given
    for key in _TEXTS:
        if key in given and not isinstance(given[key], str):
            raise UsageError(f"{where}: {key} is a text, not {given[key]!r}")
    for key in ("score", "pred", "metrics", "where"):
        if key in given:
            made[key] = _texts(where, key, given[key])
    if isinstance(given.get("metrics"), str):
        made["metrics"] = read_names(given["metrics"])
    if "k" in given:
        made["k"] = _cutoffs(where, given["k"])
    for key, kinds in (("bits", (int,)), ("negative_rate", (int, float))):
        if key in given and (not isinstance(given[key], kinds) or isinstance(given[key], bool)):
            raise UsageError(f"{where}: {key} is a number, not {given[key]!r}")
    if "labels" in given:
        if not isinstance(given["labels"], list):
            raise UsageError(f"{where}: labels is a list of the negative and the positive one, not {given['labels']!r}")
        made["labels"] = tuple(given["labels"])
    if "classes" in given:
        made["classes"] = _classes(where, given["classes"])
    return TaskSpec(**made)


def read_classes(given: str | None) -> int | tuple[Any, ...] | None:
    """Read `10`, or `cat,dog`."""
    if given is None:
        return None
    words = [word.strip() for word in given.split(",")]
    return _classes("--classes", int(given) if given.strip().isdigit() else words)


def _classes(where: str, value: Any) -> int | tuple[Any, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        return value
    if isinstance(value, list) and len(value) > 1:
        whole = all(isinstance(v, str) and v.lstrip("-").isdigit() for v in value)
        return tuple(map(int, value)) if whole else tuple(value)
    raise UsageError(f"{where}: classes are their number (2 or more), or their names, not {value!r}")


def read_names(given: str) -> tuple[str, ...]:
    """Read `auc,log_loss`."""
    return tuple(name for name in map(str.strip, given.split(",")) if name)


def read_cutoffs(given: str | None) -> tuple[int, ...] | None:
    """Read `5,10`."""
    if given is None:
        return None
    words = [word.strip() for word in given.split(",")]
    return _cutoffs("--k", [int(word) if word.isdigit() else word for word in words])


def _cutoffs(where: str, value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in values):
        raise UsageError(f"{where}: k is a positive integer or a list of them, not {value!r}")
    return tuple(values)


def _texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    values: Sequence[Any] = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise UsageError(f"{where}: {key} is a list of texts, not {value!r}")
    return tuple(values)
