"""Metrics and states of packages that are not imported: they load, merge and re-encode, but cannot update or compute."""

from __future__ import annotations

from typing import Any, NoReturn

from .arrays import ArrayRule, in_order
from .columns import Need
from .errors import StateFormatError, StreamMetricsError
from .growth import Growth
from .metric import METRICS, Metric
from .settings import decode_setting, encode_setting, unlike
from .state import DROPPED, State

__all__ = ["OpaqueMetric", "OpaqueState", "make_metric", "make_state"]

FORMS = ("count", "signed", "flag", "fixed", "exact")
RULES = ("add", "min", "max", "keyed", "rows")


class _Declared:
    """What the bytes say of a class that is not here."""

    @property
    def tag(self) -> str:
        tag: str = self.__dict__["_tag"]
        return tag

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.__dict__["_settings"]
        return settings

    @property
    def written(self) -> dict[str, Any]:
        return {name: encode_setting(value) for name, value in self.settings.items()}


class OpaqueState(_Declared, State):  # type: ignore[override]
    """A state known by its declaration alone, as the bytes carry it."""

    def __init__(self, tag: str, settings: dict[str, Any], rules: dict[str, ArrayRule]) -> None:
        absent: dict[str, Any] = dict.fromkeys(rules)  # nothing is allocated on the word of a header
        self.__dict__.update(absent, _tag=tag, _settings=settings, _declared=in_order(rules))
        self.__dict__.update(_slices=None, _load=0, _waiting={})

    def rules(self) -> dict[str, ArrayRule]:
        declared: dict[str, ArrayRule] = self.__dict__["_declared"]
        return declared

    def needs(self) -> tuple[Need, ...]:
        return ()

    def absorb(self, at: Any, /, **columns: Any) -> NoReturn:
        raise StreamMetricsError(f"{self.tag!r} is not known here: import the package that defines it, then load again")

    def empty(self, slices: int | None = None) -> OpaqueState:
        new = OpaqueState(self.tag, self.settings, self.rules())
        new._allocate(slices)
        return new

    def check_merge(self, other: State) -> Growth:
        if isinstance(other, OpaqueState) and not self.differences(other):
            new = {n: r for n, r in other.rules().items() if n not in self.rules() and r.optional}
            self.__dict__.update(
                dict.fromkeys(new), _declared=in_order(self.rules() | new)
            )  # declared there, absent here
        return super().check_merge(other)

    def widen(self, other: State) -> OpaqueState | None:
        """Make an empty state for both if they are of one kind; which settings are read-outs is not known here."""
        if not isinstance(other, OpaqueState) or self.differences(other.empty(self.slices)):
            return None
        return OpaqueState(self.tag, self.settings, other.rules() | self.rules()).empty()

    def differences(self, other: object) -> list[str]:
        if isinstance(other, OpaqueState) and other.settings.keys() != self.settings.keys():
            return [f"{n} is {a} here and {b} there" for n, (a, b) in unlike(self.settings, other.settings).items()]
        found = super().differences(other)
        if isinstance(other, OpaqueState) and not found:
            ours, theirs = self.rules(), other.rules()
            found += [f"its {n!r} is declared otherwise" for n, r in ours.items() if theirs.get(n, r) != r]
            missing = {n: r for n, r in (ours | theirs).items() if not (n in ours and n in theirs) and not r.optional}
            found += [f"only one has an array {n!r}" for n in missing]
        return found

    def __repr__(self) -> str:
        return f"OpaqueState({self.tag!r})"


class OpaqueMetric(_Declared, Metric[Any, Any]):  # type: ignore[override]
    """A metric whose class is not imported."""

    def __init__(self, tag: str, settings: dict[str, Any], header: dict[str, Any]) -> None:
        self.__dict__.update(on_invalid="raise", _tag=tag, _settings=settings, _state_header=header)

    def make_state(self) -> State:
        header: dict[str, Any] = self.__dict__["_state_header"]
        return make_state(header).empty()

    def blank(self) -> OpaqueMetric:
        return OpaqueMetric(self.tag, self.settings, self.__dict__["_state_header"])

    def update(self, *given: Any, **columns: Any) -> NoReturn:
        self.of(self.state)

    def of(self, state: State) -> NoReturn:
        raise StreamMetricsError(f"{self.tag!r} is not known here: import the package that defines it, then load again")

    def __repr__(self) -> str:
        return f"OpaqueMetric({self.tag!r})"


def make_state(header: dict[str, Any]) -> State:
    """Make the state that a header describes, still without content."""
    tag = header["tag"]
    if not isinstance(tag, str) or not isinstance(header["settings"], dict) or not isinstance(header["arrays"], list):
        raise StateFormatError("the header of a state is damaged")
    known = State._by_tag.get(tag)
    if known is None:
        settings = {k: decode_setting(v) for k, v in header["settings"].items()}
        rules = {a["name"]: _rule(a, header["slices"]) for a in header["arrays"]}
        return OpaqueState(tag, settings, rules)
    return known(**{k: decode_setting(v) for k, v in header["settings"].items()})


def make_metric(tag: str, settings: dict[str, Any], state: dict[str, Any]) -> Metric[Any, Any]:
    """Make the metric that a header describes; `state` is the header of what it reads."""
    known = METRICS.get(tag)
    decoded = {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)


def _rule(array: dict[str, Any], slices: int | None) -> ArrayRule:
    if array["form"] not in FORMS or array["rule"] not in RULES or not isinstance(array["name"], str):
        raise StateFormatError("an array is declared in an unknown way")
    if not array["name"].isidentifier() or array["name"].startswith("_") or hasattr(State, array["name"]):
        raise StateFormatError("an array has an impossible name")
    if array["name"] == "dropped" and array["shape"][-1:] != [len(DROPPED)]:
        raise StateFormatError("dropped rows are counted under other reasons")
    axes = list(array["shape"])
    if array["rule"] in ("keyed", "rows"):
        axes = [axes[1] - (slices is not None)]
    elif array["per"] is not None or slices is not None:
        axes = axes[1:]
    if array["form"] in ("fixed", "exact"):
        axes = axes[:-1]
    if not all(type(n) is int and n >= 0 for n in axes):
        raise StateFormatError("an array has an impossible shape")
    return ArrayRule(array["rule"], tuple(axes), array["form"], bool(array["optional"]), array["per"])
