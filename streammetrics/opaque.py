"""Metrics and states of packages that are not imported: they load, merge and re-encode, but cannot update or compute."""

from __future__ import annotations

from typing import Any, NoReturn

from .arrays import ArrayRule
from .columns import Need
from .errors import StateFormatError, StreamMetricsError
from .metric import METRICS, Metric
from .settings import decode_setting
from .state import DROPPED, State

__all__ = ["OpaqueMetric", "OpaqueState", "make_metric", "make_state"]

FORMS = ("count", "signed", "flag", "fixed", "exact")
RULES = ("add", "min", "max", "keyed", "rows")


class OpaqueState(State):
    """A state known by its declaration alone, as the bytes carry it."""

    def __init__(self, tag: str, settings: dict[str, Any], rules: dict[str, ArrayRule], slices: int | None) -> None:
        self.__dict__.update(_tag=tag, _settings=settings, _declared=rules)
        self._allocate(slices)

    @property
    def tag(self) -> str:  # type: ignore[override]
        tag: str = self.__dict__["_tag"]
        return tag

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.__dict__["_settings"]
        return settings

    def rules(self) -> dict[str, ArrayRule]:
        declared: dict[str, ArrayRule] = self.__dict__["_declared"]
        return declared

    def needs(self) -> tuple[Need, ...]:
        return ()

    def absorb(self, at: Any, /, **columns: Any) -> NoReturn:
        raise StreamMetricsError(f"{self.tag!r} is not known here: import the package that defines it, then load again")

    def empty(self, slices: int | None = None) -> OpaqueState:
        return OpaqueState(self.tag, self.settings, self.rules(), slices)

    def merge(self, other: State) -> OpaqueState:
        if isinstance(other, OpaqueState):  # an optional array that only the other has is declared there
            for name in [n for n in other.rules() if n not in self.rules()]:
                self.__dict__["_declared"] = {
                    n: other.rules().get(n, r) for n, r in (other.rules() | self.rules()).items()
                }
                self.__dict__[name] = None
        super().merge(other)  # type: ignore[arg-type]
        return self

    def __repr__(self) -> str:
        return f"OpaqueState({self.tag!r})"


class OpaqueMetric(Metric[Any, Any]):
    """A metric whose class is not imported."""

    def __init__(self, tag: str, settings: dict[str, Any], header: dict[str, Any]) -> None:
        self.__dict__.update(on_invalid="raise", _tag=tag, _settings=settings, _state_header=header)

    @property
    def tag(self) -> str:  # type: ignore[override]
        tag: str = self.__dict__["_tag"]
        return tag

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.__dict__["_settings"]
        return settings

    def make_state(self) -> State:
        header: dict[str, Any] = self.__dict__["_state_header"]
        return make_state(header)

    def of(self, state: State) -> NoReturn:
        raise StreamMetricsError(f"{self.tag!r} is not known here: import the package that defines it, then load again")

    def __repr__(self) -> str:
        return f"OpaqueMetric({self.tag!r})"


def make_state(header: dict[str, Any]) -> State:
    """Make the empty state that a header describes."""
    tag = header["tag"]
    if not isinstance(tag, str) or not isinstance(header["settings"], dict) or not isinstance(header["arrays"], list):
        raise StateFormatError("the header of a state is damaged")
    known = State._by_tag.get(tag)
    if known is None:
        settings = {k: decode_setting(v) for k, v in header["settings"].items()}
        rules = {a["name"]: _rule(a, header["slices"]) for a in header["arrays"]}
        return OpaqueState(tag, settings, rules, header["slices"])
    return known(**{k: decode_setting(v) for k, v in header["settings"].items()})


def make_metric(tag: str, settings: dict[str, Any], state: dict[str, Any]) -> Metric[Any, Any]:
    """Make the metric that a header describes; `state` is the header of what it reads."""
    known = METRICS.get(tag)
    decoded = {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)


def _rule(array: dict[str, Any], slices: int | None) -> ArrayRule:
    if array["form"] not in FORMS or array["rule"] not in RULES or not isinstance(array["name"], str):
        raise StateFormatError("an array is declared in an unknown way")
    if array["name"] != "dropped" and not array["name"].isidentifier():
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
