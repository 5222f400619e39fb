"""Parse metric specifications in options and task files: `auc`, `precision@0.1`, `f2`, `log_loss:eps=1e-6`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from streammetrics.cli.messages import UsageError, unknown_name_error
from streammetrics.cli.task_types import TASK_TYPES
from streammetrics.collect.metric import METRICS, Metric
from streammetrics.guide.suggest import find_suggestion, normalize_name
from streammetrics.guide.tables import PEERS, format_expression

__all__ = [
    "DEFAULT_METRICS",
    "default_settings",
    "find_at_setting",
    "format_spec",
    "make_metrics",
    "metric_names",
    "unknown_metric_error",
]

DEFAULT_METRICS = TASK_TYPES["binary"].default_metrics
"""The metrics that are computed for a click log if the user names none: ranking, loss, calibration, and rates."""

_AT_SETTINGS = (
    "k",
    "q",
    "max_fpr",
    "threshold",
    "n_bins",
    "precision",
    "recall",
    "specificity",
    "fraction",
)
"""Settings that the number after @ can set, as in `ndcg@10`. It sets the first of these settings that the metric has."""
_INTEGER = re.compile(r"[+-]?\d+")
_F_BETA = re.compile(r"f(\d+(?:\.\d+)?)")
_ALIASES: dict[str, tuple[str, dict[str, Any]]] = {"copc": ("calibration", {"inverse": True})}


def metric_names() -> list[str]:
    """Return the names of all metrics, sorted."""
    return sorted(METRICS)


def default_settings(metric: type[Metric[Any, Any]]) -> dict[str, Any]:
    """Return the default values of a metric's settings, keyed by setting."""
    return {f.name: f.default for f in fields(metric) if f.init and not f.metadata.get("operational")}


def find_at_setting(metric: type[Metric[Any, Any]]) -> str | None:
    """Return the name of the setting that `@number` sets, such as k in `ndcg@10`; None if the metric has none.

    A setting with only one possible value, such as k of MeanRank, does not count.
    """
    choices = {f.name: f.metadata.get("rules", {}).get("choices") or () for f in fields(metric)}
    return next((n for n in _AT_SETTINGS if n in default_settings(metric) and len(choices[n]) != 1), None)


def make_metrics(
    specs: Iterable[str] | None,
    *,
    default_metrics: Iterable[str] = DEFAULT_METRICS,
    cutoffs: Sequence[int] = (),
    scale: str = "probability",
    **shared: Any,
) -> dict[str, Metric[Any, Any]]:
    """Create metrics from specifications such as `auc` or `ndcg@10`; return them keyed by name.

    Parameters
    ----------
    specs : iterable of str, optional
        Each is the name of a metric, such as `auc`, optionally followed by `@number` and by `:setting=value` for each
        setting. None selects the default metrics that support the scale.
    default_metrics : iterable of str
        The default metrics.
    cutoffs : sequence of int
        Cutoffs k. A metric with a setting `k` is created once for each cutoff, unless its specification sets `k`.
    scale : {"probability", "logit", "real"}
        The scale of the scores.
    **shared
        Settings for all metrics that have them, such as `bits`.

    Raises
    ------
    UsageError
        A name is unknown (the message suggests a similar one) or repeated, or a setting is invalid.
    """
    shared = {"scale": scale} | shared
    names = list(specs) if specs is not None else [tag for tag in default_metrics if _has_scale(tag, scale)]
    metrics: dict[str, Metric[Any, Any]] = {}
    for spec in (one for name in names for one in _expand_cutoffs(name.strip(), cutoffs)):
        name, metric = _make_metric(spec, shared)
        if name in metrics:
            raise UsageError(f"the metric {name} is named twice; name it once")
        metrics[name] = metric
    if not metrics:
        raise UsageError("expected at least one metric, found none; name it with --metrics, such as --metrics auc")
    return metrics


def _expand_cutoffs(spec: str, cutoffs: Sequence[int]) -> list[str]:
    """Return one specification for each cutoff, or only `spec` itself if its metric has no cutoff or `spec` sets it."""
    head, colon, settings = spec.partition(":")
    is_open = head in METRICS and "@" not in head and not re.search(r"\bk=", settings)
    if not cutoffs or not is_open or find_at_setting(METRICS[head]) != "k":
        return [spec]
    return [f"{head}@{k}{colon}{settings}" for k in cutoffs]


def _has_scale(tag: str, scale: str) -> bool:
    return scale in _list_scales(METRICS[tag.partition("@")[0]], (scale,))


def _list_scales(metric: type[Metric[Any, Any]], default: tuple[str, ...] = ()) -> tuple[str, ...]:
    declared = next((f for f in fields(metric) if f.name == "scale"), None)
    return declared.metadata["rules"]["choices"] if declared is not None else default


def _select_settings(metric: type[Metric[Any, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the shared settings that the metric has."""
    own_settings = default_settings(metric)
    return {name: value for name, value in settings.items() if name in own_settings}


def _make_metric(spec: str, shared: dict[str, Any]) -> tuple[str, Metric[Any, Any]]:
    head, *assignments = spec.split(":")
    tag, at, number = head.partition("@")
    tag, settings = _resolve_tag(tag)
    metric = METRICS[tag]
    if at:
        setting = find_at_setting(metric)
        if setting is None:
            raise UsageError(f"metric {spec}: {tag} takes no number after @; remove '@{number}'")
        settings[setting] = _parse_value(number)
    for one in assignments:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"metric {spec}: expected a setting such as name=value, found {one!r}")
        settings[name] = value if value in _list_choices(metric, name) else _parse_value(value)
    for several, what in (("num_classes", "classes"), ("labels", "classes"), ("num_labels", "labels")):
        if several in shared and several not in default_settings(metric):
            raise UsageError(f"metric {spec}: {tag} does not support several {what}; choose another metric")
    try:
        made_metric = metric(**(_select_settings(metric, shared) | settings))
    except (ValueError, TypeError) as error:
        raise UsageError(f"metric {spec}: {error}") from None
    return (spec if assignments else made_metric.name), made_metric


def _list_choices(metric: Any, name: str) -> tuple[Any, ...]:
    """Return the strings that a setting allows; an empty tuple if any value may be valid.

    If "true" is one of these strings, the parser does not convert it to a boolean.
    """
    rules = {f.name: f.metadata.get("rules", {}) for f in fields(metric)}
    return tuple(rules.get(name, {}).get("choices") or ())


def _resolve_tag(tag: str) -> tuple[str, dict[str, Any]]:
    if tag in METRICS:
        return tag, {}
    if tag in _ALIASES:
        return _ALIASES[tag][0], dict(_ALIASES[tag][1])
    if beta := _F_BETA.fullmatch(tag):
        return "fbeta", {"beta": float(beta[1])}
    raise unknown_metric_error(tag)


def unknown_metric_error(name: str) -> UsageError:
    """Return the error for an unknown metric; for a name from another library, it suggests the equivalent metric."""
    if isinstance(_parse_value(name), (int, float)):
        return UsageError(
            f"expected the name of a metric, found {name!r}; a comma separates metrics, so write each threshold with its "
            f"metric, such as precision@0.05,precision@0.1"
        )
    suggestion = find_suggestion(name, metric_names())
    # If the unknown name, such as "rank", is part of the name of a metric in this library, the user more likely means
    # that metric than one in another library.
    is_part = any(name.lower() in tag for tag in metric_names())
    if suggestion is None or (is_part and normalize_name(suggestion.name) not in ("", normalize_name(name))):
        return unknown_name_error("metric", name, metric_names(), list_command="streammetrics catalog")
    message = f"there is no metric {name!r}"
    ours = format_spec(suggestion.ours[0]) or format_expression(suggestion.ours[0]) if suggestion.ours else ""
    if not suggestion.library:
        return UsageError(f"{message}; did you mean {ours!r}?")
    library_name = f"{PEERS[suggestion.library]}'s {suggestion.name}"
    return UsageError(
        f"{message}; {library_name} is called {ours!r} here"
        if ours
        else f"{message}; {library_name} is not offered: {suggestion.why}"
    )


def format_spec(expression: str) -> str | None:
    """Return the specification of an expression: `auc:max_fpr=0.1` for `AUC(max_fpr=0.1)`; None if there is none."""
    if expression in METRICS:
        return expression
    call = ast.parse(expression, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        return None
    tag = next((tag for tag, metric in METRICS.items() if metric.__name__ == ast.unparse(call.func)), None)
    if tag is None or not all(isinstance(keyword.value, ast.Constant) for keyword in call.keywords):
        return None
    settings = [f"{keyword.arg}={ast.literal_eval(keyword.value)}" for keyword in call.keywords]
    return ":".join([tag, *settings])


def _parse_value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    # The value is not a number, so it stays a string.
    except ValueError:
        return text
