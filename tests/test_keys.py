"""Keys of every kind, however they are held: slices and groups keep their kind, and print them as ISO 8601."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import sys
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import draws
import numpy as np
import pandas as pd
import polars as pl
import pytest

import streammetrics as sm
from streammetrics.batch import keys as key_columns
from streammetrics.batch import texts
from streammetrics.batch.discovered_keys import DiscoveredKeys
from streammetrics.batch.ids import Ids
from streammetrics.collect.metric_like import columns_of, empty_copy, states_of
from streammetrics.count.index import Level
from streammetrics.count.key_codes import DictionaryCodes, KeyCodes
from streammetrics.errors import InvalidInputError
from streammetrics.laws.case import expect_same_bytes
from streammetrics.laws.specimens import make_consistent, sample
from streammetrics.reading.records import dropped_of

pa = pytest.importorskip("pyarrow", minversion="18", reason="pyarrow before 18 has no UUID columns")

BERLIN, UTC = ZoneInfo("Europe/Berlin"), dt.UTC
DAY, EARLY = dt.date(2025, 6, 2), dt.date(1969, 1, 1)
NOON = dt.datetime(2025, 6, 2, 12, 0, 0, 250_000, tzinfo=BERLIN)
KEYS: dict[str, list[Any]] = {
    "integer": [7, 7, None, -1],
    "string": ["a", "a", None, "b"],
    "bytes": [b"a", b"a", None, b"\xff"],
    "bool": [True, True, None, False],
    "date": [DAY, DAY, None, EARLY],
    "timestamp": [NOON, NOON.astimezone(BERLIN), None, dt.datetime(1969, 1, 1, tzinfo=BERLIN)],
    "decimal": [Decimal("1.50"), Decimal("1.50"), None, Decimal("-2.00")],
}
SHOWN = {
    "integer": ["null", "-1", "7"],
    "string": ["null", "a", "b"],
    "bytes": ["null", "a", "0xff"],
    "bool": ["null", "False", "True"],
    "date": ["null", "1969-01-01", "2025-06-02"],
    "timestamp": ["null", "1968-12-31T23:00:00+00:00", "2025-06-02T10:00:00.250000+00:00"],
    "decimal": ["null", "-2", "1.5"],
}
Y, S = [0, 1, 1, 0], [0.1, 0.9, 0.4, 0.2]


def forms(kind: str) -> dict[str, Any]:
    """The same keys, otherwise held."""
    keys = KEYS[kind]
    array = pa.array(keys)
    made: dict[str, Any] = {
        "objects": np.array([*keys, None], object)[:-1],
        "tuple": tuple(keys),
        "Arrow": array,
        "Arrow chunks": pa.chunked_array([array[:1], array[1:]]),
        "Arrow dictionary": array.dictionary_encode(),
        "pandas": pd.Series(array.to_pandas(types_mapper=pd.ArrowDtype)),
        "pandas objects": pd.Series(keys, dtype=object),
        "polars": pl.from_arrow(array),
        "polars objects": pl.Series(keys, dtype=pl.Object),
        "Arrow runs": pa.RunEndEncodedArray.from_arrays(list(range(1, len(keys) + 1)), array),
        "table of one": pa.table({"any": array}),
        "frame of one": pd.DataFrame({"any": pd.Series(keys, dtype=object)}),
        "polars frame of one": pl.DataFrame({"any": pl.from_arrow(array)}),
    }
    for bits in (8, 16, 64):
        coded = array.dictionary_encode()
        made[f"Arrow codes of {bits} bits"] = coded.cast(
            pa.dictionary(getattr(pa, f"uint{bits}")(), coded.type.value_type)
        )
    if kind == "string":
        made |= {
            "polars categorical": pl.Series(keys, dtype=pl.Categorical),
            "pandas categorical": pd.Series(keys, dtype="category"),
        }
        made["polars enum"] = pl.Series(keys, dtype=pl.Enum(["b", "a"]))
    if kind in ("date", "timestamp"):
        unit = "D" if kind == "date" else "us"
        plain = [k if k is None or kind == "date" else k.astimezone(UTC).replace(tzinfo=None) for k in keys]
        made["numpy"] = np.array(plain, f"M8[{unit}]")
        made["swapped"] = made["numpy"].astype(f">M8[{unit}]")
        made["numpy, listed"] = [None if np.isnat(k) else k for k in made["numpy"]]
    if kind == "timestamp":
        made["other zones"] = [k if k is None else k.astimezone(ZoneInfo("Asia/Kolkata")) for k in keys]
        made["nanoseconds"] = made["numpy"].astype("M8[ns]")
        made["Arrow nanoseconds"] = array.cast(pa.timestamp("ns", "America/Lima"))
        made["pandas zones"] = pd.Series(made["nanoseconds"]).dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
        made["naive"] = [k if k is None else k.astimezone(UTC).replace(tzinfo=None) for k in keys]
    return made


CASES = [(kind, form) for kind in KEYS for form in forms(kind)]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_keys_of_slices_and_groups(kind: str, form: str) -> None:
    held = forms(kind)[form]
    sliced = sm.Sliced(sm.CTR(), by="k").update(y_true=Y, k=KEYS[kind])
    expect_same_bytes(sm.Sliced(sm.CTR(), by="k").update(y_true=Y, k=held), sliced, f"{form} to be keys as lists are")
    assert [r["k"] for r in sliced.table()] == sliced.keys
    assert [line.split()[0] for line in repr(sliced.table()).splitlines()[1:]] == SHOWN[kind]
    assert sm.from_bytes(sliced.to_bytes()) == sliced
    for key in KEYS[kind]:
        expected = sm.CTR().update(y_true=[y for y, k in zip(Y, KEYS[kind], strict=True) if k == key])
        assert sliced[key] == expected
        kept = sm.Sliced(sm.CTR(), by="k", limit=0, values=[key]).update(y_true=Y, k=held)
        assert len(kept.keys) == 1
        assert kept[key] == expected
        assert sm.from_bytes(kept.to_bytes()) == kept
    for metric in (sm.GroupAUC, sm.GroupLogLoss, sm.GroupCalibrationError):
        groups = metric(missing="skip").update(Y, S, group=KEYS[kind])
        expect_same_bytes(metric(missing="skip").update(Y, S, group=held), groups, f"{form} to be groups as lists are")
        assert groups.explain()["dropped"] == {"group": 1}
        assert sm.from_bytes(groups.to_bytes()) == groups
    first = sm.GroupAUC(missing="skip").update(Y, S, group=[0, 0, None, 1]).compute()
    assert sm.GroupAUC(missing="skip").update(Y, S, group=held).compute() == first


@pytest.mark.parametrize("kind", KEYS)
def test_kinds_refuse_to_merge(kind: str) -> None:
    made = {k: sm.Sliced(sm.CTR(), by="k").update(y_true=Y, k=keys) for k, keys in KEYS.items()}
    groups = {k: sm.GroupAUC(missing="skip").update(Y, S, group=keys) for k, keys in KEYS.items()}
    sums = {k: sm.GroupLogLoss(missing="skip").update(Y, S, group=keys) for k, keys in KEYS.items()}
    for others in (made, groups, sums):
        for other in KEYS:
            if other != kind:
                before = others[kind].digest()
                with pytest.raises(sm.IncompatibleStateError, match=f"{kind} here and {other} there"):
                    others[kind].merge(others[other])
                columns = (
                    {"k": KEYS[other], "y_true": Y}
                    if others is made
                    else {"group": KEYS[other], "y_true": Y, "y_score": S}
                )
                with pytest.raises(sm.InvalidInputError, match=f"{kind}"):
                    others[kind].update(columns)
                assert others[kind].digest() == before


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (np.array(["2025-01-01T00:00:00.000000001"], "M8[ns]"), "whole microseconds, found .*001 in row 0"),
        (pa.array([0, 1], pa.timestamp("ns", "UTC")), "whole microseconds, found .*001 in row 1"),
        (np.array(["12000-01-01"], "M8[D]"), "years 1 to 9999"),
        (np.array(["12000-01-01"], "M8[Y]"), "years 1 to 9999"),
        (np.array([1 << 60], "M8[s]"), "years 1 to 9999"),
        (pa.array([-(1 << 60)], pa.timestamp("s")), "years 1 to 9999"),
        ([DAY, NOON], "found date and datetime"),
        (np.array([1, 2], "m8[s]"), "found timedelta64"),
        ([0.5, 1.5], "found float"),
        ([Decimal(1), Decimal("Infinity")], r"found Decimal\('Infinity'\), which is infinite"),
        ([1, True], "found booleans and values of other types"),
        ([True, 2], "found booleans and values of other types"),
        ([np.datetime64("2025-01-01"), 1], "found datetime64 and int"),
        (pa.array([{"a": 1}] * 2), "found struct"),
        (pa.array([[1], [2]]), "found list"),
        (pa.array([b"0" * 16] * 2, pa.uuid()), "found extension<arrow.uuid>"),
        (pa.array([dt.time(1)] * 2), "found time64"),
        (pa.array([0.5, 1.5]).dictionary_encode(), "found double"),
        (pd.Series(pd.period_range("2025", periods=2, freq="D")), "found extension<pandas.period"),
        (pd.cut(pd.Series([1, 2]), 2), "found extension<pandas.interval"),
        (pl.Series([[1], [2]]), "found large_list"),
        (pl.Series([1, 2], dtype=pl.Int128), "found Int128"),
        (pd.DataFrame({"a": [1, 2], "b": [1, 2]}), "expected one column, found a table of 2"),
        (pl.LazyFrame({"a": [1, 2]}), "expected a column, found polars.LazyFrame; call collect"),
    ],
)
def test_what_is_no_key(keys: Any, words: str) -> None:
    n = 2 if isinstance(keys, pl.LazyFrame) else len(keys)
    for thing, column in (
        (sm.Sliced(sm.CTR(), by="group"), {}),
        (sm.GroupAUC(), {"y_score": [0.5] * n}),
        (sm.MetricCollection(sm.Task(sm.HeavyHitters(), value="group")), {}),
    ):
        with pytest.raises(sm.InvalidInputError, match=f"group: .*{words}"):
            thing.update({"y_true": [0] * n, "group": keys, **column})


SKIPPING = [
    (tag, need.role)
    for tag in draws.OWN
    for need in draws.usual(tag).make_state().needs()
    if isinstance(need.kind, (Ids, DiscoveredKeys)) and "missing_values" in draws.usual(tag).settings
]


@pytest.mark.parametrize(("tag", "role"), SKIPPING)
@pytest.mark.parametrize("kind", KEYS)
def test_every_metric_of_keys_leaves_the_same_rows_out(kind: str, tag: str, role: str) -> None:
    """Whatever holds them, null is none of the keys."""
    metric = type(draws.usual(tag))(**{**draws.usual(tag).settings, "missing": "skip"})
    state = metric.make_state()
    columns = make_consistent(state, sample(state.needs(), np.random.default_rng(1), len(Y), "plain", weighted=False))
    wanted = empty_copy(metric).update(columns | {role: KEYS[kind]})
    assert sum(dropped_of(wanted.state).values()) == 1
    for form, held in forms(kind).items():
        expect_same_bytes(empty_copy(metric).update(columns | {role: held}), wanted, f"{form} to be keys as lists are")


@pytest.mark.parametrize("kind", KEYS)
def test_columns_of_nulls_say_nothing_of_the_keys(kind: str) -> None:
    """Of no rows, neither."""
    typed = pa.array(KEYS[kind])
    for other in KEYS:
        sliced = sm.Sliced(sm.CTR(), by="k").update(y_true=Y, k=KEYS[other])
        for gone in (pa.nulls(4, typed.type), pa.nulls(4, typed.type).dictionary_encode(), [None] * 4):
            for n in (0, 4):
                sliced.update(y_true=Y[:n], k=gone[:n])
        assert sum(row["rows"] for row in sliced.table() if row["k"] is None) == 13
        skipped = sm.MetricCollection(sm.Sharded(sm.CTR(), unit="k", missing="skip")).update(y_true=Y, k=KEYS[other])
        assert sum(dropped_of(states_of(skipped.update(y_true=Y, k=pa.nulls(4, typed.type)))[0]).values()) == 5
    empty = sm.HeavyHitters(k=2).update(typed[:0]).update(np.zeros(0)).update([])
    assert empty.compute() == {}


@pytest.mark.parametrize("kind", KEYS)
def test_a_dictionary_that_comes_again(kind: str) -> None:
    """Its entries keep their places, whatever the order in which keys are held."""
    entries = [k for k in dict.fromkeys(KEYS[kind]) if k is not None]
    words = pa.array(entries[::-1] if kind == "decimal" else entries)
    sliced, wanted = sm.Sliced(sm.CTR(), by="k"), sm.Sliced(sm.CTR(), by="k")
    for codes in ([0, 1, 1], [0, 0, 0], [1, 0, 1]):
        sliced.update(y_true=[0, 1, 1], k=pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), words))
        wanted.update(y_true=[0, 1, 1], k=[words[i].as_py() for i in codes])
    expect_same_bytes(sliced, wanted, "dictionaries to be keys as lists are")


WORDS = ["", *("x" * n + "ü" * (n % 3) for n in range(1, 41)), "user 17", "user 18", "nul\0", "\0"]


@pytest.mark.parametrize("few", [0, 1000], ids=["kernel", "Python"])
@pytest.mark.parametrize("words", [WORDS, [w.encode() for w in WORDS]], ids=["text", "bytes"])
def test_strings_of_fixed_width_keep_their_bytes(words: list[Any], few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_columns, "FEW_TEXTS", few)
    # So small a hash table must grow.
    monkeypatch.setattr(key_columns, "SLOTS", 4)
    sm.CTR().update([0, 1])  # loads the kernels
    rows = np.array(words)[np.random.default_rng(6).integers(0, len(words), 400)]
    kind, ((data, offsets), index, missing) = key_columns.read_column(rows, "k")
    distinct = [data[a:b].tobytes() for a, b in itertools.pairwise(offsets.tolist())]
    assert (kind, missing) == ("string" if rows.dtype.kind == "U" else "bytes", None)
    assert [distinct[i] for i in index] == [w.encode() if isinstance(w, str) else w for w in rows.tolist()]
    assert len({*distinct}) == len(distinct)


@pytest.mark.parametrize("few", [0, 1000], ids=["kernel", "Python"])
def test_strings_that_are_no_text_are_refused(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_columns, "FEW_TEXTS", few)
    sm.CTR().update([0, 1])  # loads the kernels
    with pytest.raises(InvalidInputError, match="cannot be encoded as UTF-8"):
        key_columns.read_column(np.array(["a", "b\ud800"]), "k")


@pytest.mark.parametrize(
    "words", [WORDS, [w for w in WORDS if len(w.encode()) < 13 and "\0" not in w]], ids=["all", "short"]
)
@pytest.mark.parametrize("missing", [False, True])
def test_strings_give_the_same_state_in_every_form(
    words: list[str], missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "BLOCK", 16)
    rng = np.random.default_rng(5)
    keys = [None if missing and rng.random() < 0.2 else words[i] for i in rng.integers(0, len(words), 150)]
    array, views = pa.array(["first", *keys]), pa.array(["first", *keys], pa.string_view())
    made: dict[str, Any] = {
        "dictionary": array[1:].dictionary_encode(),
        "list": keys,
        "objects": np.array(keys, object),
        "Arrow": array[1:],
        "large Arrow": array.cast(pa.large_string())[1:],
        "Arrow views": views[1:],
        "Arrow chunks": pa.chunked_array([array[1:40], array[40:40], array[40:]]),
        "polars": pl.Series(["first", *keys])[1:],
        "pandas": pd.Series(keys),
    }
    y, s = rng.integers(0, 2, 150), rng.random(150)
    skip = {"missing": "skip", "missing_values": ("", "user 17")}
    for metric, columns in (
        (sm.DistinctCount(on_invalid="drop"), {}),
        (sm.Sliced(sm.CTR(), by="value"), {"y_true": y}),
        (sm.MetricCollection(sm.Task(sm.GroupAUC(**skip), group="value")), {"y_true": y, "y_score": s}),
    ):
        whole = empty_copy(metric).update(**columns, value=made["dictionary"])
        for form, column in made.items():
            expect_same_bytes(whole, empty_copy(metric).update(**columns, value=column), form)


def test_keys_beyond_int64_in_a_table() -> None:
    for keys, kind in (([1 << 63, 5], pa.uint64()), ([1 << 63, -5], pa.decimal128(20))):
        table = sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1], k=keys).table().to_arrow()
        assert table["k"].type == kind
        assert sorted(int(k) for k in table["k"].to_pylist()) == sorted(keys)


OF_KEYS = {
    "distinct count": (sm.DistinctCount, "value"),
    "distinct sample": (sm.DistinctSample, "value"),
    "key frequency": (lambda: sm.KeyFrequency(5), "value"),
    "heavy hitters": (sm.HeavyHitters, "value"),
    "group log loss": (sm.GroupLogLoss, "group"),
    "group auc": (sm.GroupAUC, "group"),
    "shards": (lambda: sm.Sharded(sm.CTR(), unit="user"), "user"),
    "slices": (lambda: sm.Sliced(sm.CTR(), by="user"), "user"),
}


def with_keys(make: Any, role: str, *keys: Any) -> Any:
    """Something that has seen rows with these keys, a batch each."""
    made = make()
    for given in keys:
        n = len(given)
        columns = {"y_true": np.arange(n) % 2, "y_score": np.linspace(0.1, 0.9, n), role: given}
        made.update({name: column for name, column in columns.items() if name in columns_of(made)})
    return made


@pytest.mark.parametrize(
    "categories",
    [
        [f"c{i}" for i in range(500)],
        range(-3, 500),
        pd.date_range("2025-01-01", periods=500),
        pd.Index([b"%d" % i for i in range(500)], dtype=object),
        pd.Index([f"c{i}" for i in range(500)], dtype="string[pyarrow]"),
    ],
    ids=["texts", "integers", "dates", "bytes", "Arrow"],
)
@pytest.mark.parametrize("name", ["slices", "group auc", "distinct count", "heavy hitters"])
def test_unused_categories_do_not_become_keys(categories: Any, name: str) -> None:
    make, role = OF_KEYS[name]
    batches = [pd.Categorical.from_codes([3, 1, 3, -1, 0], categories), pd.Categorical.from_codes([7, 3], categories)]
    columns = [pd.Series(batches[0]), pd.CategoricalIndex(batches[1]), batches[0]]
    # Only slices accept a missing key.
    if name != "slices":
        columns = [column[:3] for column in columns]
    plain = [[None if key is pd.NA or key != key else key for key in column] for column in columns]
    wanted = with_keys(make, role, *plain)
    expect_same_bytes(with_keys(make, role, *columns), wanted, "categories to be keys as other columns are")


def test_converted_categories_are_kept_only_as_long_as_the_categories() -> None:
    gc.collect()
    before = len(key_columns._CATEGORIES)
    column = pd.Series(pd.Categorical.from_codes([0, 1], [f"c{i}" for i in range(50)]))
    sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1], k=column).update(y_true=[0, 1], k=column[::-1])
    assert len(key_columns._CATEGORIES) == before + 1
    del column
    gc.collect()
    assert len(key_columns._CATEGORIES) == before


def test_strings_of_a_refused_batch_get_no_codes() -> None:
    codes = KeyCodes("k")
    codes.encode(np.array([1, 2]))
    for keys in (["a", "b"], pa.array(["a", "b"]), pl.Series(["a", "b"])):
        with pytest.raises(sm.InvalidInputError, match="kind"):
            codes.encode(keys)
        assert codes.count == 2


@pytest.mark.parametrize("parents", [1, 1 << 22])  # with so many parents, a level has a hash table
def test_codes_of_a_dictionary_find_the_same_cells(parents: int) -> None:
    rng = np.random.default_rng(2)
    above = np.zeros(0, np.int64) if parents == 1 else rng.integers(0, parents, 500)
    by_row, by_dictionary = Level(), Level()
    for distinct in (np.array([3, 1]), np.array([9, 1, 4]), np.array([2, 9, -1, 3])):
        indices = rng.integers(0, len(distinct), 500).astype(np.int32)
        cells = by_dictionary.locate(above, parents, DictionaryCodes(distinct, indices))
        np.testing.assert_array_equal(cells, by_row.locate(above, parents, distinct[indices]))
    assert (by_dictionary.extent == 0) == (parents > 1)
    np.testing.assert_array_equal(by_dictionary.codes[: by_row.count], by_row.codes[: by_row.count])


def test_codes_of_a_repeated_dictionary() -> None:
    codes, words = KeyCodes("k"), pa.array(["b", "a", "c"])
    for indices in ([2, 0, 2, 2], [1, 1, 0, 2], [0, 1, 0], [0, 1]):
        first = codes.encode(pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), words))
        # Codes are in the order of the strings. A dictionary with more entries than rows is not worth looking at.
        assert isinstance(first, DictionaryCodes) == (len(indices) > 2 and indices != [2, 0, 2, 2])
        found = first.codes[first.indices] if isinstance(first, DictionaryCodes) else first
        assert [codes._texts.values[i] for i in found] == [b"bac"[i : i + 1] for i in indices]
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 1, 3], pa.int32()), words, safe=False)
    with pytest.raises(IndexError):
        codes.encode(wrong)


def test_a_missing_string_gets_no_code() -> None:
    codes = KeyCodes("k")
    codes.encode(pa.array(["a", None]))
    assert codes.count == 1


def test_polars_strings_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(pl.Series, "to_arrow", lambda *_, **__: pytest.fail("pyarrow was used"))
    sliced = sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1, 1], k=pl.Series(["a", "b", "b"]))
    assert sliced.compute() == {"a": 0.0, "b": 1.0}


ALPHABET = np.array(
    [*"abc", "", "\0", "\x7f", "\x80", "\xdf", "\u07ff", "\u0800", "\ud7ff", "\uffff", "\U00010000", "\U0010ffff"]
)


@pytest.mark.parametrize("width", [1, 2, 7, 30])
@pytest.mark.parametrize("kind", ["U", "S"])
@pytest.mark.parametrize("name", ["slices", "group auc", "distinct count"])
def test_fixed_width_strings_give_the_same_keys_as_lists(name: str, kind: str, width: int) -> None:
    rng = np.random.default_rng(width)
    make, role = OF_KEYS[name]
    texts = ["".join(rng.choice(ALPHABET, width)) for _ in range(5000)]
    column = np.array([text.encode("utf-8")[:width] for text in texts] if kind == "S" else texts, f"{kind}{width}")
    batches = [column, column[:700], column[::-3], column.astype(column.dtype.newbyteorder(">")), column[:1]]
    wanted = with_keys(make, role, *(batch.tolist() for batch in batches))
    expect_same_bytes(with_keys(make, role, *batches), wanted, "texts of fixed width to be keys as others are")


def test_fixed_width_strings_that_are_empty_or_invalid() -> None:
    sliced = sm.Sliced(sm.CTR(), by="k")
    with pytest.raises(
        sm.InvalidInputError, match=r"k: expected text, found '.ud800', which cannot be encoded as UTF-8"
    ):
        sliced.update(y_true=[0, 1], k=np.array(["a", "\ud800"]))
    sliced.update(y_true=[0, 1], k=np.array(["", ""])).update(y_true=[0, 1], k=np.array(["a", ""]))
    assert sliced.compute() == {"": 2 / 3, "a": 0.0}


@pytest.mark.parametrize("name", OF_KEYS)
def test_one_rule_for_every_key(name: str) -> None:
    """5 is 5 in every integer type, -1 is not 2**64 - 1, and integers do not mix with text: nowhere."""
    make, role = OF_KEYS[name]
    keys = np.array([5, 7, 5, 7, 9, 9])
    whole = with_keys(make, role, keys)
    for dtype in (np.uint64, np.int8, np.uint16, ">i4", object):
        expect_same_bytes(whole, with_keys(make, role, keys.astype(dtype)), f"{np.dtype(dtype)} to count the same")
    expect_same_bytes(
        with_keys(make, role, keys, keys),
        with_keys(make, role, keys, keys.astype(np.uint64)),
        "a mix to count the same",
    )
    expect_same_bytes(whole, sm.from_bytes(whole.to_bytes()).merge(make()), "a state without keys to fit any")
    expect_same_bytes(whole, make().merge(whole), "a state without keys to fit any")

    small, large, both = (
        np.full(4, -1),
        np.full(4, 2**64 - 1, np.uint64),
        np.array([-1, -1, 2**64 - 1, 2**64 - 1], object),
    )
    assert with_keys(make, role, small).to_bytes() != with_keys(make, role, large).to_bytes()
    assert with_keys(make, role, both).to_bytes() != with_keys(make, role, small).to_bytes()

    texts = keys.astype(str)
    for first, then in ((keys, texts), (texts, keys), (texts, keys.astype(object)), (keys.astype(str).tolist(), keys)):
        with pytest.raises(sm.InvalidInputError, match=f"{role}: .* kind.*convert "):
            with_keys(make, role, first, then)
        made = sm.from_bytes(with_keys(make, role, first).to_bytes())
        before = made.to_bytes()
        with pytest.raises(sm.InvalidInputError, match="convert "):
            made.update({"y_true": [0], "y_score": [0.5], role: then[:1]} if role != "value" else {"value": then[:1]})
        assert made.to_bytes() == before
        with pytest.raises(sm.IncompatibleStateError, match=f"{role} are of kind (integer|string) here and"):
            with_keys(make, role, first).merge(with_keys(make, role, then))


def test_sides_whose_units_are_of_two_kinds() -> None:
    """The shards of integers are not those of the same numbers as text: a comparison would take them for other users."""
    users = np.arange(2000) % 500
    y = np.random.default_rng(0).random(2000) < 0.2
    a, b = (sm.Sharded(sm.CTR(), unit="user").update(y_true=y, user=u) for u in (users, users.astype(str)))
    with pytest.raises(sm.InvalidInputError, match="user has integer keys in a and string keys in b"):
        sm.compare(a, b)
    sm.compare(a, b, independent=True)


def test_units_of_several_columns() -> None:
    units = (np.array([1, 2]), ["x", "y"])
    made = sm.Sharded(sm.CTR(), unit="u").update([0, 1], u=units)
    assert sm.from_bytes(made.to_bytes()).update([0, 1], u=units).compute() == 0.5
    with pytest.raises(sm.InvalidInputError, match=r"expected keys of kind several, .* found keys of kind integer"):
        made.update([0, 1], u=np.array([1, 2]))
