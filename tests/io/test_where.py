"""Comparisons of columns are decided exactly: of integers and decimals of any length, and of times."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from streammetrics.io.row_filter import Condition
from streammetrics.io.sources import LogError

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
NEAR = [n + d for n in (0, 5, 2**53, -(2**53), 2**62, 1790000000000000001) for d in (-1, 0, 1)]
COLUMNS = [
    (pa.int64(), [*NEAR, 2**63 - 1, -(2**63)]),
    (pa.int8(), [-128, 127, 0, 1]),
    (pa.uint64(), [n for n in NEAR if n >= 0] + [2**64 - 1, 2**63]),
    (pa.decimal128(10, 2), [Decimal(n) / 100 for n in (0, 1, 110, 111, -110, 10**9)]),
    (pa.decimal256(50, 3), [Decimal(n) / 1000 for n in (0, 1, 10**40 + 1, 10**40)]),
]
NUMBERS = [str(n + d) for n in (0, 5, 2**53, 2**62, 2**63, 2**64, -(2**63), 179 * 10**16) for d in (-1, 0, 1)]
NUMBERS += [
    "1.5",
    "-0.5",
    "1e18",
    "1.79e18",
    "1.105",
    "1.10",
    "1e400",
    "-1e400",
    "1e-400",
    "inf",
    "-inf",
    "127.5",
    "-128.5",
]
NUMBERS += ["9223372036854775806.5", "10000000000000000000000000000000000000.001"]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(
    ("kind", "values"), COLUMNS, ids=lambda given: str(given) if isinstance(given, pa.DataType) else ""
)
def test_numbers(kind: pa.DataType, values: list[Any], sign: str) -> None:
    column = pa.array([None, *values], kind)
    for text in NUMBERS:
        condition, expected = Condition("c", sign, text), [False, *(SIGNS[sign](v, Decimal(text)) for v in values)]
        assert condition.holds(column).to_pylist() == expected, text
        if pa.types.is_integer(kind) and condition.is_exact:
            assert condition.holds_for_texts(pa.array([None, *map(str, values)])).to_pylist() == expected, text
    assert Condition("c", sign, "nan").holds(column).to_pylist() == [False, *[sign == "!="] * len(values)]


TIMES = {
    "2023-11-14T22:13:20": 0,
    "2023-11-14T22:13:20.000000001": 1,
    "2023-11-14T22:13:20.5": 5 * 10**8,
    "2023-11-14 22:13:19.999999999": -1,
    "2023-11-14T22:13:20.000001Z": 1000,
    "2023-11-14T23:13:20+01:00": 0,
    "2023-11-14T22:13:20.0000000005": Fraction(1, 2),
    "2023-11-14": -80_000 * 10**9,
}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
@pytest.mark.parametrize(("unit", "nanoseconds"), [("s", 10**9), ("ms", 10**6), ("us", 1000), ("ns", 1)])
def test_times(unit: str, nanoseconds: int, zone: str | None, sign: str) -> None:
    at = 1_700_000_000 * 10**9
    values = [at // nanoseconds + d for d in (-1, 0, 1)]
    column = pa.array([None, *values], pa.int64()).cast(pa.timestamp(unit, zone))
    for text, beyond in TIMES.items():
        expected = [False, *(SIGNS[sign](v * nanoseconds, at + beyond) for v in values)]
        assert Condition("at", sign, text).holds(column).to_pylist() == expected, text


def test_texts_that_are_no_integers() -> None:
    """Numbers that are not whole are compared as float64, as all of such a column are."""
    texts = pa.array(["1e30", "0.5", "18446744073709551615", "18446744073709551614", None])
    found = Condition("c", ">=", "18446744073709551615").holds_for_texts(texts)
    assert found.to_pylist() == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("kind", "text"), [(pa.int64(), "x"), (pa.decimal128(5, 2), "1,5"), (pa.timestamp("ns"), "noon"), (pa.bool_(), "2")]
)
def test_what_a_column_does_not_hold(kind: pa.DataType, text: str) -> None:
    with pytest.raises(LogError, match=f"where c>{text}: expected a value of type .*, as in column 'c'; correct"):
        Condition("c", ">", text).holds(pa.array([None], kind))
