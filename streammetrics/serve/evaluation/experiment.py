"""The definition of an experiment: arms and their shares, metrics and their roles, sources, beginning and end."""

from __future__ import annotations

import datetime
import math
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self

from ...errors import InvalidInputError
from ..store.part_keys import HOUR, NAME, hour_of, hour_text

__all__ = ["HIDDEN", "Experiment", "changes", "shares_changed"]

FIRST, LAST = 0, 2_500_000
"""Hours since 1970 that have a name of four digits of a year."""


def amount(key: str, value: Any) -> float:
    """Return a finite number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= sys.float_info.max:
        raise InvalidInputError(f"{key}: a number, 0 or more, not {value!r}")
    return float(value)


def named_amounts(key: str, value: Any) -> dict[str, float]:
    """Return names with such numbers."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise InvalidInputError(f"{key}: names with numbers, such as {{a = 0.5, b = 0.5}}, not {value!r}")
    return {name: amount(f"{key}.{name}", v) for name, v in value.items()}


def listed(key: str, value: Any) -> tuple[str, ...]:
    """Return a list of texts, each once."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
        raise InvalidInputError(f'{key}: a list of texts, such as ["a", "b"], not {value!r}')
    if len(set(value)) != len(value):
        raise InvalidInputError(f"{key}: a name is there twice: {', '.join(value)}")
    return tuple(value)


def given_hour(key: str, value: Any) -> int:
    """Return hours since 1970 of a number, a text such as 2026-06-01T09, or a date or time of TOML, in UTC."""
    if isinstance(value, datetime.datetime):
        when = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        value = int(when.timestamp()) // HOUR
    elif isinstance(value, datetime.date):
        value = f"{value.isoformat()}T00"
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidInputError(f"{key}: an hour, written as 2026-06-01T09, not {value!r}")
    try:
        hour = hour_of(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{key}: {error}") from None
    if not FIRST <= hour <= LAST:
        raise InvalidInputError(f"{key}: hours since 1970 are a number from {FIRST} to {LAST:,}, not {hour}")
    return hour


SHARE = "planned share of"
TEXTS = ("id", "control", "primary", "title", "arm", "unit", "counts")
HOURS = ("start", "end")
CLOSE = 1e-12
HIDDEN = ("webhooks",)
"""What only owners see: such addresses are as good as passwords."""
AHEAD = 1
"""Hours that a sender's clock may be ahead of this one."""


@dataclass(frozen=True)
class Experiment:
    """What is compared, by what, and until when.

    Parameters
    ----------
    id : str
        What it is called in URLs.
    arms : dict of str to float
        The planned share of users of each arm, in any unit; kept as parts of 1.
    control : str
        The arm that the others, the treatments, are compared with.
    primary : str
        The metric that decides.
    start : int or str
        The first hour: hours since 1970, or a text such as 2026-06-01T09, in UTC.
    title : str
        What it is called on pages; the id by default.
    arm : str
        The slice column of the arms.
    unit : str
        What falls to arms, in words.
    guardrails : dict of str to float
        Metrics that must not become worse by more than a margin: 0.02 is 2 % of the control.
    secondary : sequence of str
        Metrics that are shown, and decide nothing.
    model : sequence of str
        Metrics such as AUC, which each arm has of its own traffic: shown, and no effect of a treatment.
    better : dict of str to {"high", "low"}
        Which values are good, of metrics that do not say it.
    slices : sequence of str
        Slice columns that are known before treatment.
    sources : dict of str to float
        Who is expected to post every hour, and how many hours after its end.
    end : int or str, optional
        The hour at which it is planned to end.
    users : float, optional
        Users at the planned end, of all arms together. Without it there is no verdict: intervals that hold at all looks
        are made for it.
    counts : str
        The metric that counts users: `PerUnit`, by its exposures, or `DistinctSample`. Without it there is no verdict.
    phase : str, optional
        The slice column that says in which phase of the experiment, numbered, a user was first exposed: then shares may
        change, and the last phase decides.
    min_days : float
        No verdict before.
    mature_after : float
        Hours until an hour is final, as outcomes come late: younger ones are in no verdict.
    correct_within_days, retention_days : float
        How long parts are kept as they came; how long the experiment is kept after its end, None for ever.
    public : bool
        Whether anybody may read it.
    webhooks : sequence of str
        URLs that are told of alerts.

    Examples
    --------
    >>> one = Experiment("new-rank", {"old": 50, "new": 50}, "old", "ctr", "2026-06-01T00", counts="users", users=1e5)
    >>> one.arms, one.treatments
    ({'old': 0.5, 'new': 0.5}, ['new'])
    """

    id: str
    arms: dict[str, float]
    control: str
    primary: str
    start: int
    title: str = ""
    arm: str = "arm"
    unit: str = "user"
    guardrails: dict[str, float] = field(default_factory=dict)
    secondary: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    better: dict[str, str] = field(default_factory=dict)
    slices: tuple[str, ...] = ()
    sources: dict[str, float] = field(default_factory=dict)
    end: int | None = None
    users: float | None = None
    counts: str = ""
    phase: str | None = None
    min_days: float = 7.0
    mature_after: float = 0.0
    retention_days: float | None = None
    correct_within_days: float = 3.0
    public: bool = False
    webhooks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in TEXTS:
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(f"{name}: a text, not {getattr(self, name)!r}")
        for name, value in self._read().items():
            object.__setattr__(self, name, value)
        self._check_arms()
        self._check_metrics()
        self._check_rest()

    def _read(self) -> dict[str, Any]:
        """Every field that is not a text, as it is kept."""
        lists = {n: listed(n, getattr(self, n)) for n in ("secondary", "model", "slices", "webhooks")}
        amounts = {n: named_amounts(n, getattr(self, n)) for n in ("arms", "guardrails", "sources")}
        numbers = {
            n: amount(n, v)
            for n in ("users", "min_days", "mature_after", "retention_days", "correct_within_days")
            if (v := getattr(self, n)) is not None
        }
        hours = {n: given_hour(n, v) for n in HOURS if (v := getattr(self, n)) is not None}
        return lists | amounts | numbers | hours | {"title": self.title or self.id}

    def _check_arms(self) -> None:
        if len(self.arms) < 2 or any(not share for share in self.arms.values()):
            raise InvalidInputError(f"arms: two or more, each with a planned share above 0, not {self.arms!r}")
        total = math.fsum(self.arms.values())
        if abs(total - 1.0) > CLOSE:
            object.__setattr__(self, "arms", {arm: share / total for arm, share in self.arms.items()})
        if self.control not in self.arms:
            raise InvalidInputError(f"control: one of the arms {', '.join(self.arms)}, not {self.control!r}")

    def _check_metrics(self) -> None:
        roles = {
            "primary": [self.primary],
            "guardrails": self.guardrails,
            "secondary": self.secondary,
            "model": self.model,
        }
        seen: dict[str, str] = {}
        for role, names in roles.items():
            for name in names:
                if name in seen:
                    raise InvalidInputError(f"{role}: {name!r} is in {seen[name]} too; each metric has one role")
                seen[name] = role
        for name, margin in self.guardrails.items():
            if margin >= 1.0:
                raise InvalidInputError(f"guardrails: a margin of {margin:g} of {name} is {margin:.0%}; 0.02 is 2 %")
        if not isinstance(self.better, Mapping):
            raise InvalidInputError(f'better: metrics with "high" or "low", not {self.better!r}')
        for name, side in self.better.items():
            if name not in seen:
                raise InvalidInputError(f"better: {name!r} has no role; there are {', '.join(seen)}")
            if side not in ("high", "low"):
                raise InvalidInputError(f'better: "high" or "low" for {name}, not {side!r}')

    def _check_rest(self) -> None:
        for key, names in (("id", [self.id]), ("sources", self.sources)):
            for name in names:
                if not NAME.fullmatch(name):
                    raise InvalidInputError(
                        f"{key}: at most 100 letters, digits, '.', '_' or '-', the first a letter or digit, not {name!r}"
                    )
        for key in ("primary", "arm", "unit"):
            if not getattr(self, key):
                raise InvalidInputError(f"{key}: it is empty")
        if self.phase is not None and not (isinstance(self.phase, str) and self.phase):
            raise InvalidInputError(f"phase: the name of a slice column, not {self.phase!r}")
        columns = [self.arm, *self.slices, *([] if self.phase is None else [self.phase])]
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise InvalidInputError(f"slices: {twice[0]!r} is named twice among arm, phase and slices")
        if self.end is not None and self.end <= self.start:
            raise InvalidInputError(f"end: after the start, {hour_text(self.start)}, not {hour_text(self.end)}")
        if self.users is not None and not self.users:
            raise InvalidInputError("users: those at the planned end, of all arms together, more than 0")
        if not isinstance(self.public, bool):
            raise InvalidInputError(f"public: true or false, not {self.public!r}")
        for url in self.webhooks:
            if not re.match(r"https?://[^\s/]+", url):
                raise InvalidInputError(f"webhooks: URLs that begin with http:// or https://, not {url!r}")

    @classmethod
    def of_toml(cls, text: str, id: str = "") -> Self:  # noqa: A002 - as the parameter is called
        """Read a definition file.

        Parameters
        ----------
        text : str
            TOML; its keys are the parameters.
        id : str
            Of the experiment, if the file does not say it: usually the name of the file.

        Raises
        ------
        InvalidInputError
            It is no TOML, a key is missing or unknown, or a value is wrong; the message names the key.
        """
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInputError(f"the definition is no TOML: {error}") from None
        return cls.of_dict(({"id": id} if id else {}) | given)

    @classmethod
    def of_dict(cls, given: Mapping[str, Any]) -> Self:
        """Return the experiment that `to_dict` wrote, or somebody posted; raise as `of_toml` does."""
        if not isinstance(given, Mapping):
            raise InvalidInputError(f"a definition is an object of keys and values, not {given!r}")
        known = {f.name: f for f in fields(cls)}
        if unknown := [key for key in given if key not in known]:
            raise InvalidInputError(f"{unknown[0]}: there is no such key; there are {', '.join(known)}")
        needed = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in needed if name not in given]:
            raise InvalidInputError(f"{missing[0]}: the definition does not say it")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON has it, hours as texts."""
        given: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(self).items()}
        return given | {name: hour_text(given[name]) for name in HOURS if given[name] is not None}

    @property
    def treatments(self) -> list[str]:
        """The arms but the control."""
        return [arm for arm in self.arms if arm != self.control]

    def check_hour(self, hour: int, now: float) -> None:
        """Raise InvalidInputError unless an hour may have been counted by now, in seconds since 1970."""
        current = int(now // HOUR)
        if hour > current + AHEAD:
            raise InvalidInputError(f"hour {hour_text(hour)} is in the future; here it is {hour_text(current)}, UTC")
        if hour < self.start:
            raise InvalidInputError(f"hour {hour_text(hour)} is before the experiment begins, {hour_text(self.start)}")

    @property
    def metrics(self) -> dict[str, str]:
        """The role of every metric that is compared, by name."""
        roles = {self.primary: "primary"} | dict.fromkeys(self.guardrails, "guardrail")
        return roles | dict.fromkeys(self.secondary, "secondary") | dict.fromkeys(self.model, "model")


def changes(old: Experiment, new: Experiment) -> list[str]:
    """Return what a new definition changes, in sentences.

    Examples
    --------
    >>> one = Experiment("e", {"old": 50, "new": 50}, "old", "ctr", 494529)
    >>> changes(one, Experiment("e", {"old": 80, "new": 20}, "old", "ctr", 494529, users=1e6))
    ['planned share of old: 50 % is now 80 %', 'planned share of new: 50 % is now 20 %', 'users: nothing is now 1e+06']
    """
    found = []
    for arm in dict.fromkeys([*old.arms, *new.arms]):
        before, after = old.arms.get(arm), new.arms.get(arm)
        if before != after:
            found.append(f"{SHARE} {arm}: {_percent(before)} is now {_percent(after)}")
    a, b = old.to_dict(), new.to_dict()
    other = [key for key in a if key != "arms" and a[key] != b[key]]
    return found + [
        f"{key}: others than before" if key in HIDDEN else f"{key}: {_said(a[key])} is now {_said(b[key])}"
        for key in other
    ]


def shares_changed(sentences: Sequence[str]) -> bool:
    """Return whether planned shares are among `changes`."""
    return any(sentence.startswith(SHARE) for sentence in sentences)


def _percent(share: float | None) -> str:
    return "nothing" if share is None else f"{100.0 * share:.4g} %"


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(v)}" for name, v in value.items()) or "nothing"
    if isinstance(value, list):
        return ", ".join(value) or "nothing"
    if value is None or value == "":
        return "nothing"
    return f"{value:g}" if isinstance(value, float) else str(value)
