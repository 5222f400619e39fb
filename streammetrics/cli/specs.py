"""Metrics by name, as options and task files spell them: `auc`, `precision@0.1`, `f2`, `log_loss:eps=1e-6`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from streammetrics.cli.messages import UsageError, nearest
from streammetrics.cli.types import TYPES
from streammetrics.collect.metric import METRICS, Metric
from streammetrics.guide.suggest import what_is_meant
from streammetrics.guide.tables import PEERS, written

__all__ = ["DEFAULT", "at_setting", "make_metrics", "metric_names", "no_metric", "settings_of", "spelled"]

DEFAULT = TYPES["binary"].screen
"""What an unasked question about a click log gets: ranking, loss, calibration, and what the rates are."""

_AT = (
    "k",
    "q",
    "max_fpr",
    "threshold",
    "n_bins",
    "precision",
    "recall",
    "specificity",
    "fraction",
)  # what the number after @ sets, as in the names of the metrics
_INTEGER = re.compile(r"[+-]?\d+")
_F_BETA = re.compile(r"f(\d+(?:\.\d+)?)")
_SHORT: dict[str, tuple[str, dict[str, Any]]] = {"copc": ("calibration", {"inverse": True})}


def metric_names() -> list[str]:
    """Return the names of all metrics, sorted."""
    return sorted(METRICS)


def settings_of(metric: type[Metric[Any, Any]]) -> dict[str, Any]:
    """Return the settings of a metric with their defaults."""
    return {f.name: f.default for f in fields(metric) if f.init and not f.metadata.get("operational")}


def at_setting(metric: type[Metric[Any, Any]]) -> str | None:
    """Return the setting that the number after @ gives, if there is one."""
    return next((name for name in _AT if name in settings_of(metric)), None)


def make_metrics(
    specs: Iterable[str] | None,
    *,
    screen: Iterable[str] = DEFAULT,
    ks: Sequence[int] = (),
    scale: str = "probability",
    **shared: Any,
) -> dict[str, Metric[Any, Any]]:
    """Make metrics by name.

    Parameters
    ----------
    specs : iterable of str, optional
        `tag`, `tag@number`, and `tag:setting=value` (again for more settings); None for the default screen, as far as it
        suits the scale.
    screen : iterable of str
        The default screen.
    ks : sequence of int
        Cut-offs for the metrics that have one and name none.
    scale : {"probability", "logit", "real"}
        What the scores are.
    **shared
        Settings for all metrics that have them, such as `bits`.

    Raises
    ------
    UsageError
        A name is unknown (the message has the nearest), named twice, or a setting is wrong.
    """
    shared = {"scale": scale} | shared
    wanted = list(specs) if specs is not None else [tag for tag in screen if _suits(tag, scale)]
    made: dict[str, Metric[Any, Any]] = {}
    for spec in (one for name in wanted for one in _at_every_k(name.strip(), ks)):
        name, metric = _make(spec, shared)
        if name in made:
            raise UsageError(f"the metric {name} is asked for twice")
        made[name] = metric
    if not made:
        raise UsageError("no metric is asked for")
    return made


def _at_every_k(spec: str, ks: Sequence[int]) -> list[str]:
    """Return a spec with each cut-off, if the metric has one and the spec does not say which."""
    head, colon, settings = spec.partition(":")
    named = head in METRICS and "@" not in head and not re.search(r"\bk=", settings)
    if not ks or not named or at_setting(METRICS[head]) != "k":
        return [spec]
    return [f"{head}@{k}{colon}{settings}" for k in ks]


def _suits(tag: str, scale: str) -> bool:
    return scale in _scales(METRICS[tag.partition("@")[0]], (scale,))


def _scales(metric: type[Metric[Any, Any]], default: tuple[str, ...] = ()) -> tuple[str, ...]:
    declared = next((f for f in fields(metric) if f.name == "scale"), None)
    return declared.metadata["rules"]["choices"] if declared is not None else default


def _shared(metric: type[Metric[Any, Any]], given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that all metrics of a task have in common, as far as this one has them."""
    known = settings_of(metric)
    return {name: value for name, value in given.items() if name in known}


def _make(spec: str, shared: dict[str, Any]) -> tuple[str, Metric[Any, Any]]:
    head, *given = spec.split(":")
    tag, at, number = head.partition("@")
    tag, settings = _known(tag)
    metric = METRICS[tag]
    if at:
        setting = at_setting(metric)
        if setting is None:
            raise UsageError(f"metric {spec}: {tag} takes no number after @")
        settings[setting] = _value(number)
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"metric {spec}: a setting is written name=value, not {one!r}")
        settings[name] = value if value in _choices(metric, name) else _value(value)
    for several, what in (("num_classes", "classes"), ("labels", "classes"), ("num_labels", "labels")):
        if several in shared and several not in settings_of(metric):
            raise UsageError(f"metric {spec}: {tag} is not for several {what}")
    try:
        made = metric(**(_shared(metric, shared) | settings))
    except (ValueError, TypeError) as error:
        raise UsageError(f"metric {spec}: {error}") from None
    return (spec if given else made.name), made


def _choices(metric: Any, name: str) -> tuple[Any, ...]:
    """The words that a setting may be, "true" among them for one that is normalised by the true class."""
    rules = {f.name: f.metadata.get("rules", {}) for f in fields(metric)}
    return tuple(rules.get(name, {}).get("choices") or ())


def _known(tag: str) -> tuple[str, dict[str, Any]]:
    if tag in METRICS:
        return tag, {}
    if tag in _SHORT:
        return _SHORT[tag][0], dict(_SHORT[tag][1])
    if beta := _F_BETA.fullmatch(tag):
        return "fbeta", {"beta": float(beta[1])}
    raise no_metric(tag)


def no_metric(given: str) -> UsageError:
    """Return the error for a name that is no metric: what it is in other libraries and in the field, or the nearest."""
    meant = what_is_meant(given, metric_names())
    if meant is None:
        return nearest("metric", given, metric_names())
    said = f"there is no metric {given!r}"
    ours = spelled(meant.ours[0]) or written(meant.ours[0]) if meant.ours else ""
    if not meant.whose:
        return UsageError(f"{said}; did you mean {ours!r}?")
    whose = f"{PEERS[meant.whose]}'s {meant.name}"
    return UsageError(f"{said}; {whose} is {ours!r} here" if ours else f"{said}; {whose} is not offered: {meant.why}")


def spelled(ours: str) -> str | None:
    """Return `AUC(max_fpr=0.1)` as options have it, `auc:max_fpr=0.1`; None for what they cannot say."""
    if ours in METRICS:
        return ours
    made = ast.parse(ours, mode="eval").body
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name) or made.args:
        return None
    tag = next((tag for tag, metric in METRICS.items() if metric.__name__ == ast.unparse(made.func)), None)
    if tag is None or not all(isinstance(given.value, ast.Constant) for given in made.keywords):
        return None
    settings = [f"{given.arg}={ast.literal_eval(given.value)}" for given in made.keywords]
    return ":".join([tag, *settings])


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    except ValueError:  # a setting that is a text
        return text
