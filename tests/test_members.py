"""Small classes: how many members metrics, accumulators and wrappers have, those of all their bases counted."""

from __future__ import annotations

import inspect
import pickle
import sys
import types

import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import Accumulator
from streammetrics.extend import METRICS, Axis, AxisDefinition, AxisWrapper, Definition, Metric, MetricLike, accumulate
from streammetrics.state.state import State


def members(cls: type) -> set[str]:
    """The names of a class and of its bases, private ones too, without those with two underscores."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("streammetrics")]
    return {name for base in own for name in vars(base) if not (name.startswith("__") and name.endswith("__"))}


def loaded_classes() -> set[type]:
    """All classes of the package's modules that are loaded."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("streammetrics.")]
    classes = {cls for module in modules for _, cls in inspect.getmembers_static(module, inspect.isclass)}
    return {cls for cls in classes if cls.__module__.startswith("streammetrics.")}


def shown(thing: object) -> set[str]:
    """The public names that an editor shows of an object."""
    return {name for name in {*members(type(thing)), *vars(thing)} if not name.startswith("_")}


@pytest.mark.parametrize(
    ("cls", "most"),
    [(Metric, 25), (Accumulator, 25), (MetricLike, 15), (AxisWrapper, 30), (Definition, 34), (sm.MetricCollection, 25)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_bases_are_small(cls: type, most: int) -> None:
    assert len(members(cls)) <= most, sorted(members(cls))


@pytest.mark.parametrize(("kind", "most"), [("metrics", 55), ("states", 155), ("others", 80)])
def test_no_member_has_only_moved(kind: str, most: int) -> None:
    """The largest classes: a member that leaves a base must not make another class larger than any was before."""
    groups: dict[str, list[type]] = {"metrics": [], "states": [], "others": []}
    for cls in loaded_classes():
        groups["metrics" if issubclass(cls, Metric) else "states" if issubclass(cls, State) else "others"].append(cls)
    ten = sorted(((len(members(cls)), cls.__qualname__) for cls in groups[kind]), reverse=True)[:10]
    assert ten[0][0] <= most, ten


@pytest.mark.parametrize(
    "thing",
    [sm.AUC(), sm.MetricCollection(sm.AUC()), sm.Sliced(sm.AUC(), by="k"), sm.Windowed(sm.AUC(), width="1d")],
    ids=lambda thing: type(thing).__name__,
)
def test_objects_show_at_most_forty_names(thing: object) -> None:
    assert len(shown(thing)) <= 40, sorted(shown(thing))


def test_no_public_attribute_is_a_bag_of_methods() -> None:
    """Methods that were moved from a metric into an attribute of it would still be methods of it."""
    for cls in METRICS.values():
        for name in members(cls):
            value = None if name.startswith("_") else getattr(cls, name)
            methods = [n for n, m in vars(type(value)).items() if isinstance(m, types.FunctionType) and n[0] != "_"]
            assert not (type(value).__module__.startswith("streammetrics") and methods), (cls, name, methods)


class CohortDefinition(AxisDefinition):
    """The definition of a metric by cohort."""

    kind = "example.cohorts"
    noun = "cohort"

    @property
    def name(self):
        return f"{self.inner.name} by cohort"

    def header(self):
        return {"kind": self.kind, "inner": self.inner.header(), "column": self.axis.names[0]}

    @classmethod
    def of_header(cls, header, states):
        return cls(cls.inner_of_header(header, states), Axis((header["column"],)))


class Cohorts(AxisWrapper):
    """A metric for every cohort of users: a wrapper of another package, in 25 lines."""

    def __init__(self, metric, *, column="cohort", on_invalid=None):
        self._accumulator = accumulate(CohortDefinition.from_metrics(metric, Axis((column,)), on_invalid, None))

    def largest(self):
        """Return the cohort with most rows."""
        return max(self, key=lambda cohort: self[cohort].explain()["rows"])


CohortDefinition.public = Cohorts


def test_a_wrapper_by_hand():
    rows = {"y_true": [0, 1, 1, 1], "cohort": ["may", "may", "may", "june"]}
    cohorts = Cohorts(sm.CTR()).update(rows)
    assert cohorts.compute() == {"june": 1.0, "may": 2 / 3}
    assert (cohorts.largest(), cohorts.total.compute()) == ("may", 0.75)
    assert sm.from_bytes(cohorts.to_bytes(), Cohorts) == pickle.loads(pickle.dumps(cohorts)) == cohorts
    assert sm.merge([cohorts, cohorts.copy()])["may"] == sm.CTR().update([0, 1, 1] * 2)
    assert sm.Sliced(Cohorts(sm.CTR()), by="country").update({**rows, "country": ["de"] * 4})["de"] == cohorts
    with pytest.raises(sm.IncompatibleStateError, match="column is 'cohort' here and 'month' there"):
        cohorts.merge(Cohorts(sm.CTR(), column="month"))
    with pytest.raises(KeyError, match="there is no cohort 'july'"):
        cohorts["july"]
