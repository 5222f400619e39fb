"""What a table tells, CSV and JSON tell too: the same slices under the same names, whatever keys and options there are."""

from __future__ import annotations

import csv
import datetime as dt
import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 300
UTC = dt.UTC
KEYS: dict[str, list[Any]] = {
    "text": [None, "null", "(other)", "(expired)", "a b", "x,y", "NaN", "ünï"],
    "integer": [None, 0, -5, 2**62],
    "date": [None, dt.date(2024, 1, 2), dt.date(1969, 12, 31)],
    "timestamp": [dt.datetime(2024, 1, 2, 3, tzinfo=UTC), dt.datetime(2024, 5, 2, 3, 4, 5, 678, tzinfo=UTC)],
    "boolean": [None, True, False],
    "decimal": [None, Decimal("1.50"), Decimal("-0.07")],
    "bytes": [None, b"ab", b"c"],
}
WINDOWS = ("--window", 2, "--time", "step")
OPTIONS: list[tuple[Any, ...]] = [
    (), ("--limit", 2), ("--limit", 0), ("--limit", 2, "--keep", "hash"), WINDOWS, ("--limit", 2, *WINDOWS),
    ("--unit", "user"), ("--min-rows", 60), ("--sort", "calibration"),
]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rng = np.random.default_rng(5)
    columns: dict[str, Any] = {n: [keys[i] for i in rng.integers(0, len(keys), ROWS)] for n, keys in KEYS.items()}
    columns |= {"y": rng.integers(0, 2, ROWS), "p": rng.random(ROWS)}
    columns |= {"step": rng.integers(0, 6, ROWS), "user": rng.integers(0, 90, ROWS)}
    path = tmp_path_factory.mktemp("forms") / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def told(table: str) -> list[tuple[str, int]]:
    """The slices of printed tables, each by its name and rows."""
    found = []
    for section in table.split("\nby ")[1:]:
        head, *lines = section.split("\n\n")[0].splitlines()[1:]
        end = head.index("rows") + 4
        for line in lines:
            name, _, rows = line[:end].rstrip().rpartition(" ")
            if rows.replace(",", "").isdigit() and not line.startswith("the limit keeps "):  # else a remark
                found.append((" ".join(name.split()), int(rows.replace(",", ""))))
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(map(str, options)))
@pytest.mark.parametrize("by", [*KEYS, "text,integer", "boolean,date"])
def test_three_forms_tell_the_same(by: str, options: tuple[Any, ...], run: Any, log: Any) -> None:
    asked = ("eval", log, "--label", "y", "--score", "p", "--metrics", "calibration", "--by", by, *options)
    printed = told(run(*asked, "--top", 1000).out)
    lines = [line for line in csv.DictReader(io.StringIO(run(*asked, "--format", "csv").out)) if line["slice"]]
    records = [r for r in run(*asked, "--format", "json").records if r["by"]]
    assert [(r["rows"], r["value"]) for r in records] == [
        (int(c["rows"]), float(c["value"]) if c["value"] else None) for c in lines
    ]
    names = [" ".join(" ".join(c[name] for name in r["by"]).split()) for r, c in zip(records, lines, strict=True)]
    assert printed == list(zip(names, (r["rows"] for r in records), strict=True))
