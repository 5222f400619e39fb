"""The definition of an experiment: arms and shares, metrics and roles, sources, start and end."""

from __future__ import annotations

import datetime
import math
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self

from ...errors import InvalidInputError
from ..calendar_days import find_first_hour, to_time_zone
from ..part_keys import HOUR, NAME, format_hour, parse_hour

__all__ = ["HIDDEN_FIELDS", "Experiment", "describe_changes", "has_share_change"]

FIRST_HOUR, LAST_HOUR = 0, 2_500_000
"""The first and the last allowed hour, in hours since 1970. All years between them have four digits."""


def check_amount(key: str, value: Any) -> float:
    """Return a finite, nonnegative number as a float; for other values, raise an InvalidInputError that names `key`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= sys.float_info.max:
        raise InvalidInputError(f"{key}: expected a number of 0 or more, found {value!r}")
    return float(value)


def check_named_amounts(key: str, value: Any) -> dict[str, float]:
    """Check a mapping of names to finite, nonnegative numbers and return it as a dict of floats.

    For other values, raise an InvalidInputError that names `key`.
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise InvalidInputError(f"{key}: expected names with numbers, such as {{a = 0.5, b = 0.5}}, found {value!r}")
    return {name: check_amount(f"{key}.{name}", v) for name, v in value.items()}


def check_names(key: str, value: Any) -> tuple[str, ...]:
    """Return a list of distinct strings as a tuple; for other values, raise an InvalidInputError that names `key`."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
        raise InvalidInputError(f'{key}: expected a list of strings, such as ["a", "b"], found {value!r}')
    if len(set(value)) != len(value):
        raise InvalidInputError(f"{key}: expected distinct names, found {', '.join(value)}")
    return tuple(value)


def convert_hour(key: str, value: Any, time_zone: str = "UTC") -> int:
    """Return a time as a number of hours since 1970.

    The time may be a number of hours since 1970, a string such as 2026-06-01T09 (UTC) or 2026-06-01, a TOML date-time
    or a TOML date. A date-time is rounded down to the hour, and is in UTC if it has no offset. A date stands for the
    first hour of that day in the time zone.
    """
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        with suppress(ValueError):  # An invalid date such as 2026-02-30 is reported below.
            value = datetime.date.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        time = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        value = int(time.timestamp()) // HOUR
    elif isinstance(value, datetime.date):
        value = find_first_hour(value, time_zone)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidInputError(f"{key}: expected an hour in UTC such as 2026-06-01T09, found {value!r}")
    try:
        hour = parse_hour(value)
    except InvalidInputError:
        raise InvalidInputError(f"{key}: expected an hour in UTC such as 2026-06-01T09, found {value!r}") from None
    if not FIRST_HOUR <= hour <= LAST_HOUR:
        raise InvalidInputError(f"{key}: expected {FIRST_HOUR} to {LAST_HOUR:,} hours since 1970, found {hour}")
    return hour


SHARE_PREFIX = "planned share of"
TEXT_FIELDS = (
    "id", "control", "primary", "title", "description", "hypothesis", "owner", "arm", "unit", "counts", "timezone",
)  # fmt: skip
HOUR_FIELDS = ("start", "end")
SHARE_TOLERANCE = 1e-12
HIDDEN_FIELDS = ("webhooks",)
"""The fields that only owners see. The URLs of webhooks, for example, often contain secrets."""
MAX_CLOCK_LEAD = 1
"""How many hours the clock of a sender may be ahead of the clock of the server."""


@dataclass(frozen=True)
class Experiment:
    """The definition of an experiment.

    Parameters
    ----------
    id : str
        The ID, which is part of URLs.
    arms : dict of str to float
        The planned share of users for each arm, in any unit; the shares are scaled to sum to 1.
    control : str
        The arm with which all other arms (the treatments) are compared.
    primary : str
        The metric that decides the verdict.
    start : int or str
        The first hour: hours since 1970, or a string such as 2026-06-01T09, in UTC. In TOML files, a date without a
        time stands for the first hour of that day in `timezone`.
    title : str
        The title on pages; by default, the ID.
    description, hypothesis, owner : str
        What is tested, what is expected, and who is responsible.
    tags : sequence of str
        Tags, such as the team or the product. People can search by tag, and readers can be limited to certain tags.
    archived : bool
        Whether the experiment is hidden from the list of experiments.
    arm : str
        The slice column that contains the arm.
    unit : str
        The unit of randomization, in words, such as "user".
    guardrails : dict of str to float
        Metrics that must not become worse by more than a relative margin; 0.02 means 2 % of the control's value.
    secondary : sequence of str
        Metrics that are shown but do not affect the verdict.
    model : sequence of str
        Metrics, such as AUC, that describe the model on the traffic of each arm; differences in them are not treatment
        effects.
    better : dict of str to {"high", "low"}
        Which values are better, for metrics that do not define this themselves.
    slices : sequence of str
        Slice columns; their values must be known before treatment.
    sources : dict of str to float
        The sources that post every hour, with the expected delay after the end of the hour, in hours. Only these
        sources are expected to post.
    closed : dict of str to int or str
        The sources that no longer post, with the first hour for which no part is expected.
    end : int or str, optional
        The planned end.
    users : float, optional
        The planned number of users in all arms together. Always-valid intervals are tuned for this number, so there is
        no verdict without it.
    counts : str
        The name of a metric that counts users, such as a `PerUnit` or `DistinctSample` metric. There is no verdict
        without it.
    phase : str, optional
        The slice column with the number of the phase in which a user was first exposed. A new phase begins whenever the
        planned shares change, or when the rules for the verdict change in a way that needs new users (see
        `LateChange`). Verdicts use only the last phase.
    timezone : str
        The IANA name of the time zone that defines days, such as "Europe/Berlin". When its clocks change, a day has 23
        or 25 hours. Hours are always UTC hours.
    min_days : float
        The number of complete days of data required before the first verdict. Each day begins at the time of day at
        which the experiment, or its last phase, started. It is complete if at least 90 % of its hours have a part from
        each of `sources`, or from any source if `sources` is empty.
    mature_after : float
        The number of hours after the end of an hour until its outcomes, such as late conversions, are complete.
        Verdicts use only hours with complete outcomes.
    correct_within_days, retention_days : float
        `correct_within_days` is the number of days for which a part can be corrected before it is merged into its day.
        `retention_days` is the number of days after the end for which the parts are kept; None means forever.
    public : bool
        Whether anyone may read the experiment.
    webhooks : sequence of str
        The URLs to which alerts are posted.
    accepted_changes : dict of str to str
        Versions of this definition that changed the primary metric, the planned users or the guardrails after the first
        data had arrived, each with the reason why the change is acceptable.

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
    description: str = ""
    hypothesis: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False
    arm: str = "arm"
    unit: str = "user"
    guardrails: dict[str, float] = field(default_factory=dict)
    secondary: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    better: dict[str, str] = field(default_factory=dict)
    slices: tuple[str, ...] = ()
    sources: dict[str, float] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    end: int | None = None
    users: float | None = None
    counts: str = ""
    phase: str | None = None
    timezone: str = "UTC"
    min_days: float = 7.0
    mature_after: float = 0.0
    retention_days: float | None = None
    correct_within_days: float = 3.0
    public: bool = False
    webhooks: tuple[str, ...] = ()
    accepted_changes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in TEXT_FIELDS:
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(f"{name}: expected a string, found {getattr(self, name)!r}")
        for name, value in self._convert_fields().items():
            object.__setattr__(self, name, value)
        self._check_arms()
        self._check_metrics()
        self._check_rest()

    def _convert_fields(self) -> dict[str, Any]:
        """Check and convert all fields that are not strings, and return them by name."""
        to_time_zone(self.timezone)
        lists = {n: check_names(n, getattr(self, n)) for n in ("tags", "secondary", "model", "slices", "webhooks")}
        amounts = {n: check_named_amounts(n, getattr(self, n)) for n in ("arms", "guardrails", "sources")}
        numbers = {
            n: check_amount(n, v)
            for n in ("users", "min_days", "mature_after", "retention_days", "correct_within_days")
            if (v := getattr(self, n)) is not None
        }
        hours = {n: convert_hour(n, v, self.timezone) for n in HOUR_FIELDS if (v := getattr(self, n)) is not None}
        closed = {
            name: convert_hour(f"closed.{name}", hour, self.timezone) for name, hour in self._read_closed().items()
        }
        return lists | amounts | numbers | hours | {"closed": closed, "title": self.title or self.id}

    def _read_closed(self) -> Mapping[str, Any]:
        if not isinstance(self.closed, Mapping):
            raise InvalidInputError(
                f'closed: expected sources with hours, such as {{web = "2026-06-05T12"}}, found {self.closed!r}'
            )
        if unknown := [name for name in self.closed if name not in self.sources]:
            raise InvalidInputError(
                f"closed: expected names in sources ({', '.join(self.sources) or 'none'}), found {unknown[0]!r}"
            )
        return self.closed

    def _check_arms(self) -> None:
        if len(self.arms) < 2 or any(not share for share in self.arms.values()):
            raise InvalidInputError(f"arms: expected two or more arms with planned shares above 0, found {self.arms!r}")
        total = math.fsum(self.arms.values())
        if abs(total - 1.0) > SHARE_TOLERANCE:
            object.__setattr__(self, "arms", {arm: share / total for arm, share in self.arms.items()})
        if self.control not in self.arms:
            raise InvalidInputError(f"control: expected one of the arms {', '.join(self.arms)}, found {self.control!r}")

    def _check_metrics(self) -> None:
        roles = {
            "primary": [self.primary],
            "guardrails": self.guardrails,
            "secondary": self.secondary,
            "model": self.model,
        }
        role_of: dict[str, str] = {}
        for role, names in roles.items():
            for name in names:
                if name in role_of:
                    raise InvalidInputError(f"{role}: {name!r} is also in {role_of[name]}; remove it from one list")
                role_of[name] = role
        for name, margin in self.guardrails.items():
            if margin >= 1.0:
                raise InvalidInputError(
                    f"guardrails: expected a margin below 1 for {name}, found {margin:g} ({margin:.0%}); "
                    f"write 0.02 for 2 %"
                )
        if not isinstance(self.better, Mapping):
            raise InvalidInputError(
                f'better: expected a table that maps metrics to "high" or "low", found {self.better!r}'
            )
        for name, side in self.better.items():
            if name not in role_of:
                raise InvalidInputError(
                    f"better: expected metrics of the definition ({', '.join(role_of)}), found {name!r}"
                )
            if side not in ("high", "low"):
                raise InvalidInputError(f'better: expected "high" or "low" for {name}, found {side!r}')

    def _check_rest(self) -> None:
        for key, names in (("id", [self.id]), ("sources", self.sources)):
            for name in names:
                if not NAME.fullmatch(name):
                    raise InvalidInputError(
                        f"{key}: expected at most 100 letters, digits, '.', '_' or '-', beginning with a letter or "
                        f"digit, found {name!r}"
                    )
        for key in ("primary", "arm", "unit"):
            if not getattr(self, key):
                raise InvalidInputError(f"{key}: expected a name, found an empty string")
        if self.phase is not None and not (isinstance(self.phase, str) and self.phase):
            raise InvalidInputError(f"phase: expected the name of a slice column, found {self.phase!r}")
        columns = [self.arm, *self.slices, *([] if self.phase is None else [self.phase])]
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise InvalidInputError(
                f"slices: expected distinct columns in arm, phase and slices, found {twice[0]!r} twice"
            )
        if self.end is not None and self.end <= self.start:
            raise InvalidInputError(
                f"end: expected an hour after the start {format_hour(self.start)}, found {format_hour(self.end)}"
            )
        if self.users is not None and not self.users:
            raise InvalidInputError(
                "users: expected the planned number of users in all arms together, above 0; found 0"
            )
        for key in ("public", "archived"):
            if not isinstance(getattr(self, key), bool):
                raise InvalidInputError(f"{key}: expected true or false, found {getattr(self, key)!r}")
        if not isinstance(self.accepted_changes, Mapping) or not all(
            isinstance(reason, str) and reason.strip() for reason in self.accepted_changes.values()
        ):
            raise InvalidInputError(
                f"accepted_changes: expected versions with reasons, such as {{2 = 'the old metric was logged twice'}}, "
                f"found {self.accepted_changes!r}"
            )
        for url in self.webhooks:
            if not re.match(r"https?://[^\s/]+", url):
                raise InvalidInputError(f"webhooks: expected URLs that begin with http:// or https://, found {url!r}")

    @classmethod
    def from_toml(cls, text: str, id: str = "") -> Self:  # noqa: A002 - as the parameter is called
        """Read a definition file.

        Parameters
        ----------
        text : str
            TOML whose keys are the parameters of this class.
        id : str
            The ID to use if the text contains none; usually the name of the file, without `.toml`.

        Raises
        ------
        InvalidInputError
            The text is not valid TOML, a key is missing or unknown, or a value is invalid; the message names the key.
        """
        try:
            definition = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInputError(f"the definition is not valid TOML: {error}") from None
        return cls.from_dict(({"id": id} if id else {}) | definition)

    @classmethod
    def from_dict(cls, definition: Mapping[str, Any]) -> Self:
        """Create an experiment from a mapping, such as the result of `to_dict`.

        Raise the same errors as `from_toml`.
        """
        if not isinstance(definition, Mapping):
            raise InvalidInputError(
                f"expected a definition, which is an object with keys and values; found {definition!r}"
            )
        keys = {f.name: f for f in fields(cls)}
        if unknown := [key for key in definition if key not in keys]:
            raise InvalidInputError(
                f"{unknown[0]}: the definition has an unknown key; the known keys are {', '.join(keys)}"
            )
        required = [n for n, f in keys.items() if f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in required if name not in definition]:
            raise InvalidInputError(f"{missing[0]}: the definition lacks this key, which is required")
        return cls(**definition)

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON values, with hours as strings such as 2026-06-01T09."""
        definition: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(self).items()}
        hours: dict[str, Any] = {n: format_hour(definition[n]) for n in HOUR_FIELDS if definition[n] is not None}
        return definition | hours | {"closed": {name: format_hour(hour) for name, hour in self.closed.items()}}

    @property
    def treatments(self) -> list[str]:
        """The names of all arms except the control."""
        return [arm for arm in self.arms if arm != self.control]

    def check_hour(self, hour: int, now: float) -> None:
        """Raise InvalidInputError if an hour is before the start of the experiment or in the future.

        `now` is the current time in seconds since 1970. The hour after the current one is also allowed, because the
        clock of the sender may be fast.
        """
        current = int(now // HOUR)
        if hour > current + MAX_CLOCK_LEAD:
            raise InvalidInputError(
                f"hour {format_hour(hour)} is in the future: the current hour is {format_hour(current)}, UTC; "
                f"check the clock of the sender"
            )
        if hour < self.start:
            raise InvalidInputError(
                f"hour {format_hour(hour)} is before the start of the experiment, {format_hour(self.start)}; "
                f"correct the hour, or the value of start in the definition"
            )

    @property
    def metrics(self) -> dict[str, str]:
        """The role, such as "primary", of each compared metric, keyed by metric name."""
        roles = {self.primary: "primary"} | dict.fromkeys(self.guardrails, "guardrail")
        return roles | dict.fromkeys(self.secondary, "secondary") | dict.fromkeys(self.model, "model")


def describe_changes(old: Experiment, new: Experiment) -> list[str]:
    """Return the changes from one definition to another as sentences.

    Examples
    --------
    >>> one = Experiment("e", {"old": 50, "new": 50}, "old", "ctr", 494529)
    >>> new = Experiment("e", {"old": 80, "new": 20}, "old", "ctr", 494529, users=1e6)
    >>> describe_changes(one, new)[1:]
    ['planned share of new: changed from 50 % to 20 %', 'users: changed from none to 1e+06']
    """
    sentences = []
    for arm in dict.fromkeys([*old.arms, *new.arms]):
        before, after = old.arms.get(arm), new.arms.get(arm)
        if before != after:
            sentences.append(f"{SHARE_PREFIX} {arm}: changed from {_format_share(before)} to {_format_share(after)}")
    a, b = old.to_dict(), new.to_dict()
    other = [key for key in a if key != "arms" and a[key] != b[key]]
    return sentences + [
        f"{key}: changed"
        if key in HIDDEN_FIELDS
        else f"{key}: changed from {_format_value(a[key])} to {_format_value(b[key])}"
        for key in other
    ]


def has_share_change(sentences: Sequence[str]) -> bool:
    """Return whether one of the sentences from `describe_changes` is about planned shares."""
    return any(sentence.startswith(SHARE_PREFIX) for sentence in sentences)


def _format_share(share: float | None) -> str:
    return "none" if share is None else f"{100.0 * share:.4g} %"


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_value(v)}" for name, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if value is None or value == "":
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
