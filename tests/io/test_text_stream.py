"""What text files hold besides text in UTF-8: said in the message, or read as it is meant."""

from __future__ import annotations

import bz2
import gzip
import time
from pathlib import Path

import pyarrow as pa
import pytest

from streammetrics.io.logs import Log, LogError
from streammetrics.io.quotes import QuoteCheck
from streammetrics.io.sources import make_log_file
from streammetrics.io.text_stream import SEPARATOR, TextStream

TEXT = b"y,p\n0,0.5\n1,0.25\n"
JSON = b'{"y": 0, "p": 0.5}\n{"y": 1, "p": 0.25}\n'


def read(path: Path, **options: object) -> list[float]:
    log = Log(path, **options)  # type: ignore[arg-type]
    return [v for part in log.parts(["p"]) for batch in part.batches() for v in batch["p"].to_pylist()]


@pytest.mark.parametrize(("name", "text"), [("a.csv", TEXT), ("a.jsonl", JSON)])
@pytest.mark.parametrize(
    ("how", "what"),
    [
        (lambda text: text.decode().encode("utf-16"), "UTF-16; convert the file with iconv -f UTF-16 -t UTF-8"),
        (
            lambda text: text.decode().encode("utf-16-le"),
            "a zero byte; if the file is in UTF-16, convert the file with",
        ),
        (gzip.compress, "gzip compression; add .gz to the file name"),
        (bz2.compress, "bzip2 compression; add .bz2 to the file name"),
        (lambda text: pa.compress(text, "zstd", asbytes=True), "zstd compression; add .zst to the file name"),
        (lambda _: b"PAR1....", "a Parquet file; change its suffix to .parquet"),
    ],
    ids=["utf-16", "utf-16-le", "gzip", "bzip2", "zstd", "parquet"],
)
def test_other_contents_are_named(tmp_path: Path, name: str, text: bytes, how: object, what: str) -> None:
    (path := tmp_path / name).write_bytes(how(text))  # type: ignore[operator]
    with pytest.raises(LogError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: expected text in UTF-8, found ")
    assert what in str(caught.value)


@pytest.mark.parametrize(("name", "text"), [("a.csv.gz", TEXT), ("a.jsonl.gz", JSON)])
def test_gzip_that_is_padded_with_zeros(tmp_path: Path, name: str, text: bytes) -> None:
    half = len(text) // 2
    (path := tmp_path / name).write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]) + bytes(512))
    assert read(path) == [0.5, 0.25]
    path.write_bytes(gzip.compress(text) + b"not zeros")
    with pytest.raises(LogError, match="the compressed data is damaged"):
        read(path)


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf" + TEXT, TEXT.replace(b"\n", b"\r\n"), TEXT[:-1]])
def test_ends_of_lines_and_byte_order_marks(tmp_path: Path, text: bytes) -> None:
    (path := tmp_path / "a.csv").write_bytes(text)
    assert read(path) == [0.5, 0.25]


@pytest.mark.parametrize("size", [2, 3, 5, 100])
def test_long_delimiters_across_blocks(tmp_path: Path, size: int) -> None:
    text = b"a::b:::c\n::x:\n:"
    (path := tmp_path / "a.csv").write_bytes(text)
    stream, found = TextStream(make_log_file(str(path)), delimiter="::"), b""
    while block := stream.read(size):
        assert len(block) <= size
        found += block
    assert found == text.replace(b"::", SEPARATOR.encode())
    path.write_bytes(b"a\x1fb\n")
    with pytest.raises(LogError, match="reserved to replace delimiters of several characters"):
        TextStream(make_log_file(str(path)), delimiter="::").read(100)


def test_blocks_that_end_within_a_delimiter_are_checked_once(tmp_path: Path) -> None:
    blocks = [b"a::b\n1", b":", b':"z\n', b'w"\n']

    class Plain:
        def read(self, size: int = -1) -> bytes:
            return blocks.pop(0) if blocks else b""

    (path := tmp_path / "a.csv").touch()
    checked: list[bytes] = []
    quotes = QuoteCheck("a.csv", SEPARATOR)
    quotes.check_block, take = lambda block: [checked.append(block), take(block)], quotes.check_block  # type: ignore
    stream = TextStream(make_log_file(str(path)), Plain(), "::", quotes)  # type: ignore[arg-type]
    text = b"".join(iter(lambda: stream.read(100), b""))
    assert text == b"".join(checked) == b'a::b\n1::"z\nw"\n'.replace(b"::", SEPARATOR.encode())


def test_wide_files_take_time_in_proportion_to_their_width(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(4000)]
    (path := tmp_path / "a.csv").write_text("\n".join([",".join(names), ",".join("1" * 4000), ",".join("2" * 4000)]))
    before = time.process_time()
    log = Log(path)
    assert len(log.columns) == 4000
    assert len([*log.parts(names[:50])]) == 1
    assert time.process_time() - before < 0.8  # 20 s where the names were decoded for each column
