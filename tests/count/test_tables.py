"""Tables that number keys and cells: what an interrupt leaves at any place of them numbers the same as before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import faults
import numpy as np
import pytest

from streammetrics.count import key_codes as numbers
from streammetrics.count.index import Index
from streammetrics.count.key_codes import IntegerCodes, TextCodes
from streammetrics.state.axes import Axis

KEY, GROUP = Axis(("a",)), Axis(("b",), "group")


def ints(seed: int, n: int) -> Callable[[Any], Any]:
    values = np.random.default_rng(seed).integers(0, 3000, n)
    return lambda table: table.encode(values).tolist()


def texts(seed: int, n: int) -> Callable[[Any], Any]:
    words = [f"key {i}".encode() for i in np.random.default_rng(seed).integers(0, 3000, n)]
    data, ends = np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)])
    return lambda table: table.encode(data, ends[:-1], ends[1:]).tolist()


def cells(seed: int, n: int, axis: Axis = KEY, most: int = 40) -> Callable[[Any], Any]:
    """Two columns, the second within the first."""
    rng = np.random.default_rng(seed)
    columns = {"a": rng.integers(0, 1 + most // 8, n), "b": rng.integers(-2, most, n)}
    if axis is GROUP:
        columns["b"] = rng.integers(0, 9, (n, 2)) if seed % 2 else columns["b"]

    def call(index: Index) -> Any:
        mark = index.mark()
        try:
            return index.locate((("a", KEY), ("b", axis)), lambda step: columns[step[0]], {}).tolist()
        except BaseException:
            index.restore(mark)
            raise

    return call


CASES: dict[str, tuple[Callable[[], Any], list[Callable[[Any], Any]]]] = {
    "integers": (IntegerCodes, [ints(0, 4), ints(1, 7), ints(2, 50)]),
    "texts": (TextCodes, [texts(0, 4), texts(1, 7), texts(2, 50)]),
    "small": (Index, [cells(0, 9), cells(1, 30), cells(2, 900, most=400)]),
    "hashes": (Index, [cells(0, 9), cells(1, 200, most=1 << 30), cells(2, 900, most=1 << 40)]),
    "groups": (Index, [cells(s, n, GROUP) for s, n in ((0, 9), (1, 300), (2, 2000))]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_interrupt_at_any_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "FREE", 16)  # so that they grow
    make, calls = CASES[name]
    for last in range(len(calls)):

        def known(last: int = last) -> Any:
            table = make()
            for call in calls[:last]:
                call(table)
            return table

        undisturbed = known()
        after = [call(undisturbed) for call in (*calls[last:], *calls)]
        count = faults.At(None, KeyboardInterrupt)
        count.run(partial(calls[last], known()))
        assert count.passed > 5
        for stop in range(1, count.passed + 1):
            table = known()
            faults.At(stop, KeyboardInterrupt).run(partial(calls[last], table))
            assert [call(table) for call in (*calls[last:], *calls)] == after, f"place {stop} of {count.passed}"
