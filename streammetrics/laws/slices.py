"""Laws of slices: each is what its rows make alone, and all of them what all rows make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..collect.collection import MetricCollection
from ..collect.metric_like import columns_of
from ..collect.serialization import from_bytes, merge
from ..compose.sliced import Sliced
from ..numerics.keys import fixed_hash, sort_key
from .case import Case, Law, expect, same
from .metrics import dropping, spoiled
from .objects import absent_class, bytes_round_trip, merge_leaves_other, order, splits
from .specimens import KEYS, Columns, sample_keys


def slices(case: Case) -> None:
    """Each slice is, to the byte, the metric of its rows; `total` that of all; bad rows are dropped in their slice."""
    keys = _keys(case, 1)
    slices_are_alone(case, keys, {})
    columns, _ = spoiled(case)
    slices_are_alone(case._replace(columns=columns, make=dropping(case)), keys, {"on_invalid": "drop"})


def slices_by_two(case: Case) -> None:
    """Slices by two columns roll up to slices by one."""
    keys = _keys(case, 2)
    slices_are_alone(case, keys, {})
    slices_roll_up(case, keys)


def slices_within_limit(case: Case) -> None:
    """With a limit the keys of smallest hash, and the values asked for, are kept; `other` is the metric of the rest."""
    keys = _keys(case, 1)
    values = [k for k in dict.fromkeys(next(iter(keys.values())).tolist()) if case.rng.random() < 0.3]
    slices_are_alone(case, keys, {"limit": int(case.rng.integers(0, 4)), "values": values})


def slices_in_any_order(case: Case) -> None:
    """Slices split and merged in any order give one digest, with and without a limit."""
    keys = _keys(case, 1)
    pinned = list(next(iter(keys.values()))[:1])
    settings = ({}, {"limit": 2}, {"limit": 1, "values": pinned})[case.rng.integers(3)]
    sliced = case._replace(make=slicing(case, keys, settings), columns=case.columns | keys)
    for law in (splits, order, merge_leaves_other, bytes_round_trip, absent_class):
        law(sliced)


def slices_of_slices(case: Case) -> None:
    """What a slice of slices holds is what its rows make, and a limit acts within the slice above."""
    keys = _keys(case, 2)
    limits: list[dict[str, Any]] = [{"limit": int(n)} if n < 3 else {} for n in case.rng.integers(0, 6, 2)]
    outer, inner = ({name: column} for name, column in keys.items())
    below = slicing(case, inner, limits[1])
    slices_are_alone(case._replace(make=below, columns=case.columns | inner), outer, limits[0])
    if not limits[0] and not limits[1]:
        deep, flat = (made().update(case.columns | keys) for made in (_deep(case, keys), slicing(case, keys, {})))
        for key in flat:
            same(flat[key], deep[key[0]][key[1]], f"slice {key!r} of both columns to be that of one, then the other")


def slices_of_collections(case: Case) -> None:
    """Slices of a collection hold, in each, what the metric makes of its rows; other metrics change nothing."""
    keys = _keys(case, 1)
    several = case._replace(make=lambda: MetricCollection({"": case.make(), "again": case.make()}))
    slices_are_alone(several, keys, {"limit": 2})
    whole, lone = (slicing(c, keys, {})().update(case.columns | keys) for c in (several, case))
    for key in lone:
        same(lone[key], whole[key][""], f"slice {key!r} of a collection to hold what the metric's holds")


def collections_of_slices(case: Case) -> None:
    """A collection that counts a metric and slices of it in one pass holds of each what it is alone."""
    keys = _keys(case, 2)
    one = {name: keys[name] for name in list(keys)[:1]}
    made = {"": case.make, "one": slicing(case, one, {}), "limited": slicing(case, one, {"limit": 1})}
    made["deep"] = _deep(case, keys)
    columns = case.columns | keys

    def collected(rows: Columns) -> MetricCollection:
        return MetricCollection({name: make() for name, make in made.items()}).update(rows)

    whole = collected(columns)
    halves = merge([collected({n: c[rows] for n, c in columns.items()}) for rows in case.parts(2)])
    same(whole, halves, "halves of a collection of slices to merge")
    for name, make in made.items():
        alone = make().update({n: c for n, c in columns.items() if n in columns_of(make())})
        decoded = from_bytes(whole.to_bytes(), MetricCollection)
        for what, found in (("", whole), ("merged ", halves), ("decoded ", decoded)):
            same(alone, found[name], f"{name!r} of a {what}collection to be what it is alone")
        same(alone, whole.only([name])[name], f"only() to keep {name!r} as it is alone")


def _deep(case: Case, keys: Columns) -> Callable[[], Sliced]:
    """Return what makes empty slices of slices."""
    first, *rest = keys
    return lambda: Sliced(Sliced(case.make(), by=rest), by=first)


def _keys(case: Case, k: int) -> Columns:
    kinds = case.rng.choice(KEYS, k)
    made = (sample_keys(case.rng, case.n, kind, several=4 - k) for kind in kinds)
    return {f"key{i}": column[case.blocks] for i, column in enumerate(made)}  # a slice takes blocks whole


def slicing(case: Case, keys: Columns, settings: dict[str, Any]) -> Callable[[], Sliced]:
    """Return what makes empty slices of a case by these columns."""
    return lambda: Sliced(case.make(), by=list(keys), **settings)


def slices_are_alone(case: Case, keys: Columns, settings: dict[str, Any]) -> None:
    """Each slice, `other` and `total` are, to the byte, what is counted from their rows alone."""
    sliced = slicing(case, keys, settings)().update(case.columns | keys)
    of_row = list(zip(*(column.tolist() for column in keys.values()), strict=True))
    kept = expected_keys(of_row, settings)
    shown = [k if len(keys) > 1 else k[0] for k in sorted(kept, key=sort_key)]
    expect(sliced.keys == shown, f"the keys {shown}", sliced.keys)
    for key in kept:
        mine = case.take([i for i, k in enumerate(of_row) if k == key])
        same(case.fed(mine), sliced[key], f"slice {key!r} to be what its rows make alone")
    rest = case.take([i for i, k in enumerate(of_row) if k not in kept])
    same(case.fed(rest), sliced.other, "`other` to be what the rows of all other keys make")
    same(case.fed(), sliced.total, "`total` to be what all rows make")


def expected_keys(of_row: list[Any], settings: dict[str, Any]) -> set[Any]:
    """Return the keys that slices with these settings keep."""
    met = set(of_row)
    if settings.get("limit") is None:
        return met
    pinned = {v if isinstance(v, tuple) else (v,) for v in settings.get("values", ())}
    free = sorted(met - pinned, key=lambda k: (fixed_hash(k), sort_key(k)))
    return (met & pinned) | set(free[: settings["limit"]])


def slices_roll_up(case: Case, keys: Columns) -> None:
    """Rolled up, slices are what slicing by fewer columns makes."""
    sliced = slicing(case, keys, {})().update(case.columns | keys)
    for name in keys:
        few = slicing(case, {name: keys[name]}, {})().update(case.columns | keys)
        same(few, sliced.rollup(name), f"slices rolled up by {name!r} to be slices by it")
    same(sliced, sliced.rollup(list(keys)), "slices rolled up by all columns to be themselves")


SLICE_LAWS: list[Law] = [
    slices,
    slices_by_two,
    slices_within_limit,
    slices_in_any_order,
    slices_of_slices,
    slices_of_collections,
    collections_of_slices,
]
"""What a metric keeps in slices."""
