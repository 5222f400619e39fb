"""The questions in an experiment: which metrics decide, which must not become worse, and which values are better."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import InvalidInputError
from .differences import BEST_RATIO

__all__ = [
    "GUARDRAIL",
    "PRIMARY",
    "SECONDARY",
    "Question",
    "build_question",
    "check_arms",
    "check_roles",
    "read_margins",
]

PRIMARY, GUARDRAIL, SECONDARY = "primary", "guardrail", "secondary"


class Question(NamedTuple):
    """The role of one metric in an experiment.

    Parameters
    ----------
    name : str
        Name of the metric.
    role : str
        "primary", "guardrail" or "secondary".
    better : str
        Which values are better: "high", "low", or "one" for values close to 1.
    margin : float or None
        For a guardrail, how much worse the metric may be; None for other roles.
    """

    name: str
    role: str
    better: str
    margin: float | None = None


def read_margins(guardrails: Any, relative: bool) -> dict[str, float]:
    """Return the margin of each guardrail; raise an error for a relative margin of 1 (100 %) or more."""
    if guardrails is not None and not isinstance(guardrails, Mapping):
        raise InvalidInputError(
            f'guardrails= takes a dict of metrics with their margins, such as {{"auc": 0.01}}, not {guardrails!r}'
        )
    margins = dict(guardrails or {})
    for name, margin in margins.items():
        if relative and margin >= 1:
            raise InvalidInputError(
                f"{name}: a margin of {margin:g} is {margin:.0%} of the control; pass a fraction, such as 0.02 for 2 %"
            )
    return margins


def check_arms(arms: Collection[Any], control: Any) -> None:
    """Raise InvalidInputError unless there are at least two arms, one of which is the control."""
    if control in arms and len(arms) > 1:
        return
    remedy = ""
    if any(str(name).startswith(f"{control}/") for name in arms):
        remedy = "; for several models in one object, pass {name: models[name] for name in (...)}"
    elif any(isinstance(name, tuple) for name in arms):
        remedy = "; for slices by several columns, pass arms.rollup(...) with the name of the column of arms"
    raise InvalidInputError(
        f"control= must be the name of an arm, and there must be two arms or more; found control={control!r} and the "
        f"arms {', '.join(map(str, arms))}{remedy}"
    )


def check_roles(roles: Sequence[tuple[str, str]], better: Mapping[str, str]) -> None:
    """Raise InvalidInputError if a metric has two roles, or if `better` names an unknown metric or direction."""
    names = [name for name, _ in roles]
    if twice := [name for name in names if names.count(name) > 1]:
        roles_found = " and ".join(role for name, role in roles if name == twice[0])
        raise InvalidInputError(f"{twice[0]} is {roles_found}; name each metric only once")
    for name, side in better.items():
        if name not in names:
            raise InvalidInputError(
                f"better= names {name!r}, which is not in the scorecard; its metrics are {', '.join(names)}; add it with "
                f"secondary=[{name!r}]"
            )
        if side not in ("high", "low"):
            raise InvalidInputError(f'better= takes "high" or "low" for {name}, not {side!r}')


def build_question(
    name: str, role: str, metrics: Mapping[str, Any], better: Mapping[str, str], margin: float | None
) -> Question:
    """Return the role of one metric as a `Question`.

    Raises
    ------
    InvalidInputError
        The metric does not exist, or neither the metric nor `better` defines which values are better.
    """
    if name not in metrics:
        raise InvalidInputError(f"there is no metric {name!r}; the metrics are {', '.join(metrics)}")
    best = better.get(name, metrics[name].about.best)
    if best == BEST_RATIO:
        best = "one"
    if best not in ("high", "low", "one"):
        raise InvalidInputError(
            f'{name} does not define which values are better; pass better={{"{name}": "high"}}, or "low"'
        )
    return Question(name, role, best, margin if role == GUARDRAIL else None)
