"""Quotation marks: cells may hold line breaks, but a lone mark at the start of a cell is refused."""

from __future__ import annotations

import csv
import io
import random
from contextlib import nullcontext
from pathlib import Path

import pytest

from streammetrics.io.logs import Log, LogError
from streammetrics.io.quotes import QuoteCheck

WORDS = ["a", 'b"c', "", "x\ny", '"q"', "d,e", 'say ""', '"', "l1\nl2\nl3", "z\r\nw", "end\n", "Hello, you\nthere"]


def check(data: bytes, sizes: random.Random) -> str | None:
    """Return what is said of a file that comes in blocks of any size."""
    quotes, at = QuoteCheck("f", ","), 0
    try:
        while at < len(data):
            size = sizes.choice([1, 2, 7, 50, 1000])
            quotes.check_block(data[at : at + size])
            at += size
        quotes.check_block(b"")
    except LogError as error:
        return str(error)
    return None


def test_files_that_are_quoted_as_they_should_be() -> None:
    rng = random.Random(0)
    for _ in range(300):
        out = io.StringIO()
        quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        writer = csv.writer(out, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writerow(["k", "x", "y"])
        writer.writerows([rng.choice(WORDS), rng.randint(0, 9), rng.choice(WORDS)] for _ in range(rng.randint(0, 8)))
        data = out.getvalue().encode()
        assert check(data, rng) is None, data


def test_two_lone_marks_anywhere() -> None:
    rng = random.Random(1)
    for _ in range(300):
        rows = [[rng.choice(["a", 'b 27" c', "foo"]), str(rng.randint(0, 9)), "z"] for _ in range(9)]
        for row in rng.sample(rows, 2):
            row[rng.choice([0, 2])] = '"' + rng.choice(["foo", "", "x y"])
        data = "\n".join(map(",".join, [["k", "x", "y"], *rows])).encode() + rng.choice([b"", b"\n"])
        found = {check(data, rng) for _ in range(3)}
        assert len(found) == 1
        assert next(iter(found)), data


def test_a_lone_mark_that_the_next_one_within_a_cell_closes() -> None:
    for text, refused in ((b'"foo,1\nb,2\n27",3\n', True), (b'"Hello, world\n27",3\n', False)):
        quotes = QuoteCheck("f", ",")
        quotes.check_block(b"k,x\n7,1\na,2\n")
        with pytest.raises(LogError) if refused else nullcontext():
            quotes.check_block(text)
            quotes.check_block(b"")


def read(path: Path, text: str, **options: object) -> list[str]:
    path.write_text(text)
    log = Log(path, **options)  # type: ignore[arg-type]
    return [key for part in log.parts([], ["k"]) for batch in part.batches() for key in batch["k"].to_pylist()]


def test_the_error_names_lines_and_the_option(tmp_path: Path) -> None:
    path, text = tmp_path / "a.csv", 'k,x\na,1\n"foo,1\nb,2\n"bar,3\nd,4\n'
    with pytest.raises(LogError) as caught:
        read(path, text)
    assert str(caught.value) == (
        f"{path}: lines 3 to 5: a cell begins with an unpaired quotation mark, '\"foo,1', and would swallow the rows up "
        "to the next such cell; pass quotes=False to read quotation marks as ordinary characters. If the cell is correct, "
        "convert the log to Parquet."
    )
    assert read(path, text, quotes=False) == ["a", '"foo', "b", '"bar', "d"]


def test_cells_whose_lines_have_as_many_commas_as_rows(tmp_path: Path) -> None:
    text = 'k,x\n"Great product, thanks\n",1\nbad,0\n'
    assert read(tmp_path / "a.csv", text) == ["Great product, thanks\n", "bad"]
    for sizes in range(5):
        assert check(text.encode(), random.Random(sizes)) is None
    with pytest.raises(LogError, match="If the cell is correct, convert the log to Parquet"):
        read(tmp_path / "a.csv", 'k,x\n",1\nb,2\n",3\nd,4\n')


def test_a_mark_that_is_left_open(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"a\.csv: line 2: a quotation mark is never closed; pass quotes=False"):
        read(tmp_path / "a.csv", 'k,x\n"foo,1\nb,2\n')


def test_marks_within_cells_are_ordinary_characters(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", 'k,x\n27" tv,1\n"a ""b""",2\n') == ['27" tv', 'a "b"']
