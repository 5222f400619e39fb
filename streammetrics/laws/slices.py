"""Laws of `Sliced` metrics: each slice equals a metric of its rows alone, and the total equals a metric of all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..collect.collection import MetricCollection
from ..collect.metric_like import columns_of
from ..collect.serialization import from_bytes, merge
from ..compose.sliced import Sliced
from ..numerics.slice_keys import hash_key, sort_key
from .case import Case, Law, expect, expect_same_bytes
from .metrics import dropping_factory, spoil_rows
from .objects import absent_class, bytes_round_trip, merge_leaves_other, order, splits
from .specimens import KEYS, Columns, sample_keys


def slices(case: Case) -> None:
    """Each slice equals a metric of its rows, and `total` a metric of all rows, even if invalid rows are dropped."""
    keys = _random_keys(case, 1)
    check_each_slice(case, keys, {})
    columns, _ = spoil_rows(case)
    check_each_slice(case._replace(columns=columns, make=dropping_factory(case)), keys, {"on_invalid": "drop"})


def slices_by_two(case: Case) -> None:
    """Slices by two columns, rolled up to one of them, equal slices by that column alone."""
    keys = _random_keys(case, 2)
    check_each_slice(case, keys, {})
    check_roll_up(case, keys)


def slices_within_limit(case: Case) -> None:
    """Keys in `values` and up to `limit` others (with the smallest hashes) get slices; `other` counts all the rest."""
    keys = _random_keys(case, 1)
    values = [k for k in dict.fromkeys(next(iter(keys.values())).tolist()) if case.rng.random() < 0.3]
    check_each_slice(case, keys, {"limit": int(case.rng.integers(0, 4)), "values": values})


def slices_in_any_order(case: Case) -> None:
    """Slices give the same bytes for any split of the rows and any merge order, with or without a limit."""
    keys = _random_keys(case, 1)
    pinned = list(next(iter(keys.values()))[:1])
    settings = ({}, {"limit": 2}, {"limit": 1, "values": pinned})[case.rng.integers(3)]
    sliced = case._replace(make=slices_factory(case, keys, settings), columns=case.columns | keys)
    for law in (splits, order, merge_leaves_other, bytes_round_trip, absent_class):
        law(sliced)


def slices_of_slices(case: Case) -> None:
    """In nested slices, an inner slice equals a metric of its rows; the inner limit applies in each outer slice."""
    keys = _random_keys(case, 2)
    limits: list[dict[str, Any]] = [{"limit": int(n)} if n < 3 else {} for n in case.rng.integers(0, 6, 2)]
    outer, inner = ({name: column} for name, column in keys.items())
    below = slices_factory(case, inner, limits[1])
    check_each_slice(case._replace(make=below, columns=case.columns | inner), outer, limits[0])
    if not limits[0] and not limits[1]:
        deep, flat = (
            make().update(case.columns | keys)
            for make in (_nested_slices_factory(case, keys), slices_factory(case, keys, {}))
        )
        for key in flat:
            expect_same_bytes(
                flat[key], deep[key[0]][key[1]], f"slice {key!r} of both columns to equal the nested slice"
            )


def slices_of_collections(case: Case) -> None:
    """Slicing a collection gives each of its metrics the same slices as slicing that metric alone."""
    keys = _random_keys(case, 1)
    several = case._replace(make=lambda: MetricCollection({"": case.make(), "again": case.make()}))
    check_each_slice(several, keys, {"limit": 2})
    whole, lone = (slices_factory(c, keys, {})().update(case.columns | keys) for c in (several, case))
    for key in lone:
        expect_same_bytes(lone[key], whole[key][""], f"slice {key!r} of a collection to equal the slice of the metric")


def collections_of_slices(case: Case) -> None:
    """If a collection contains a metric and various slices of it, each entry has the state that it would have alone."""
    keys = _random_keys(case, 2)
    one = {name: keys[name] for name in list(keys)[:1]}
    makers = {"": case.make, "one": slices_factory(case, one, {}), "limited": slices_factory(case, one, {"limit": 1})}
    makers["deep"] = _nested_slices_factory(case, keys)
    columns = case.columns | keys

    def collect(rows: Columns) -> MetricCollection:
        return MetricCollection({name: make() for name, make in makers.items()}).update(rows)

    whole = collect(columns)
    halves = merge([collect({n: c[rows] for n, c in columns.items()}) for rows in case.parts(2)])
    expect_same_bytes(whole, halves, "two merged halves of a collection of slices to equal the whole")
    for name, make in makers.items():
        alone = make().update({n: c for n, c in columns.items() if n in columns_of(make())})
        decoded = from_bytes(whole.to_bytes(), MetricCollection)
        for what, collection in (("", whole), ("merged ", halves), ("decoded ", decoded)):
            expect_same_bytes(alone, collection[name], f"{name!r} in a {what}collection to equal {name!r} alone")
        expect_same_bytes(alone, whole.only([name])[name], f"only() to keep {name!r}")


def _nested_slices_factory(case: Case, keys: Columns) -> Callable[[], Sliced]:
    """Return a function that creates empty nested slices: the outer by the first key column, the inner by the rest."""
    first, *rest = keys
    return lambda: Sliced(Sliced(case.make(), by=rest), by=first)


def _random_keys(case: Case, k: int) -> Columns:
    kinds = case.rng.choice(KEYS, k)
    key_columns = (sample_keys(case.rng, case.n, kind, several=4 - k) for kind in kinds)
    # All rows of a block (such as a query) get the same key, because a block must not be split between slices.
    return {f"key{i}": column[case.blocks] for i, column in enumerate(key_columns)}


def slices_factory(case: Case, keys: Columns, settings: dict[str, Any]) -> Callable[[], Sliced]:
    """Return a function that creates an empty `Sliced` metric with these key columns and settings."""
    return lambda: Sliced(case.make(), by=list(keys), **settings)


def check_each_slice(case: Case, keys: Columns, settings: dict[str, Any]) -> None:
    """Check that each slice, `other` and `total` have the same bytes as metrics of their rows alone.

    Parameters
    ----------
    case : Case
        The metric and its rows.
    keys : dict of arrays
        The columns to slice by.
    settings : dict
        The settings of `Sliced`, such as `limit`.
    """
    sliced = slices_factory(case, keys, settings)().update(case.columns | keys)
    of_row = list(zip(*(column.tolist() for column in keys.values()), strict=True))
    kept = expected_keys(of_row, settings)
    shown = [k if len(keys) > 1 else k[0] for k in sorted(kept, key=sort_key)]
    expect(sliced.keys == shown, f"the keys {shown}", sliced.keys)
    for key in kept:
        mine = case.take([i for i, k in enumerate(of_row) if k == key])
        expect_same_bytes(case.build(mine), sliced[key], f"slice {key!r} to equal the metric of its rows")
    rest = case.take([i for i, k in enumerate(of_row) if k not in kept])
    expect_same_bytes(case.build(rest), sliced.other, "`other` to equal the metric of all other rows")
    expect_same_bytes(case.build(), sliced.total, "`total` to equal the metric of all rows")


def expected_keys(of_row: list[Any], settings: dict[str, Any]) -> set[Any]:
    """Return the keys that slices with these settings should keep; `of_row` contains the key of each row."""
    occurring = set(of_row)
    if settings.get("limit") is None:
        return occurring
    pinned = {v if isinstance(v, tuple) else (v,) for v in settings.get("values", ())}
    free = sorted(occurring - pinned, key=lambda k: (hash_key(k), sort_key(k)))
    return (occurring & pinned) | set(free[: settings["limit"]])


def check_roll_up(case: Case, keys: Columns) -> None:
    """Check that slices by several columns, rolled up to one of them, equal slices by that column alone."""
    sliced = slices_factory(case, keys, {})().update(case.columns | keys)
    for name in keys:
        few = slices_factory(case, {name: keys[name]}, {})().update(case.columns | keys)
        expect_same_bytes(few, sliced.rollup(name), f"slices rolled up by {name!r} to equal slices by that column")
    expect_same_bytes(sliced, sliced.rollup(list(keys)), "slices rolled up by all columns to be unchanged")


SLICE_LAWS: list[Law] = [
    slices,
    slices_by_two,
    slices_within_limit,
    slices_in_any_order,
    slices_of_slices,
    slices_of_collections,
    collections_of_slices,
]
"""The laws of this module, in the order in which `check_metric` runs them."""
