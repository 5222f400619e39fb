import bz2
import concurrent.futures
import gzip
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from streammetrics.errors import StreamMetricsError
from streammetrics.io.logs import Log, LogError
from streammetrics.io.readers import BATCH_ROWS

ROWS = 10_000
COLUMNS = ["user_id", "country", "click", "pctr"]


def make_table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    countries = np.array(["US", "DE", "NA", None], dtype=object)
    return pa.table(
        {
            "user_id": rng.integers(0, 1 << 60, rows),
            "country": pa.array(countries[rng.integers(0, 4, rows)], pa.string()),
            "device": pa.array(np.array(["ios", "web"])[rng.integers(0, 2, rows)]),
            "click": (rng.random(rows) < 0.1).astype(np.int8),
            "pctr": rng.random(rows),
        }
    )


TABLE = make_table()


def write_parquet(table, path):
    pq.write_table(table, path, row_group_size=3000)


def write_csv(table, path, delimiter=","):
    text = pa.BufferOutputStream()
    csv.write_csv(table, text, csv.WriteOptions(delimiter=delimiter, quoting_style="needed"))
    data = text.getvalue().to_pybytes()
    name = str(path)
    if name.endswith(".gz"):
        data = gzip.compress(data, 1)
    elif name.endswith(".bz2"):
        data = bz2.compress(data, 1)
    elif name.endswith((".zst", ".zstd")):
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)


def write_tsv(table, path):
    write_csv(table, path, delimiter="\t")


def write_ipc(table, path, compression=None):
    with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=1500)


def write_zstd_ipc(table, path):
    write_ipc(table, path, "zstd")


def write_stream(table, path):
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1500)


FORMATS = {
    "log.parquet": write_parquet,
    "LOG.PARQUET": write_parquet,
    "log.csv": write_csv,
    "log.csv.gz": write_csv,
    "log.csv.zst": write_csv,
    "log.csv.zstd": write_csv,
    "log.csv.bz2": write_csv,
    "log.tsv": write_tsv,
    "log.tsv.gz": write_tsv,
    "log.arrow": write_ipc,
    "log.feather": write_zstd_ipc,
    "log.ipc": write_ipc,
    "stream.arrows": write_stream,
}


def is_text(name):
    return ".csv" in name or ".tsv" in name


def rows_of(log, columns, keys=()):
    batches = [batch for part in log.parts(columns, keys) for batch in part.batches()]
    wanted = list(dict.fromkeys([*columns, *keys]))
    assert all(batch.schema.names == wanted for batch in batches)
    return {name: [value for batch in batches for value in batch[name].to_pylist()] for name in wanted}


def error_of(call, *arguments, **options):
    with pytest.raises(LogError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_rows(tmp_path, name):
    FORMATS[name](TABLE, tmp_path / name)
    log = Log(tmp_path / name)
    assert log.columns == TABLE.column_names
    assert log.bytes == (tmp_path / name).stat().st_size
    expected = {name: TABLE[name].to_pylist() for name in ["click", "pctr", "country", "user_id"]}
    if is_text(name):
        expected["user_id"] = [*map(str, expected["user_id"])]
    assert rows_of(log, ["click", "pctr"], ["country", "user_id"]) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_keys_keep_the_type_that_the_format_has(tmp_path, name):
    FORMATS[name](TABLE, tmp_path / name)
    (batch, *_) = Log(tmp_path / name).parts(["click"], ["country", "user_id"])[0].batches()
    assert batch["country"].type == pa.dictionary(pa.int32(), pa.string())
    assert batch["user_id"].type == (pa.dictionary(pa.int32(), pa.string()) if is_text(name) else pa.int64())


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_parts_tile_the_file(tmp_path, name):
    FORMATS[name](make_table(150_000), tmp_path / name)
    log = Log(tmp_path / name)
    parts = log.parts(["click"])
    known = name.lower().endswith(".parquet") or (name != "stream.arrows" and "sv" not in name)
    assert len(parts) == (2 if known else 1)
    assert log.rows == (150_000 if known else None)
    assert sum(part.bytes for part in parts) == log.bytes
    row = 0
    for part in parts:
        assert (part.file, part.first_row) == (str(tmp_path / name), row)
        sizes = [batch.num_rows for batch in part.batches()]
        assert max(sizes) <= BATCH_ROWS
        assert part.rows == (sum(sizes) if known else None)
        assert part.read_bytes == part.bytes
        row += sum(sizes)
    assert row == 150_000


@pytest.mark.slow
def test_parts_can_be_read_in_threads_and_in_other_processes(tmp_path):
    write_parquet(make_table(500_000), tmp_path / "log.parquet")
    parts = Log(tmp_path / "log.parquet").parts(["click"], ["country"])

    def clicks(part):
        return sum(int(np.sum(batch["click"].to_numpy())) for batch in part.batches())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(clicks, parts))
    assert counts == [clicks(part) for part in pickle.loads(pickle.dumps(parts))]
    assert sum(counts) == int(np.sum(make_table(500_000)["click"].to_numpy()))


@pytest.mark.slow
def test_progress_in_bytes(tmp_path):
    write_csv(make_table(300_000), tmp_path / "log.csv.gz")
    (part,) = Log(tmp_path / "log.csv.gz").parts(["click"])
    seen = [part.read_bytes for _ in part.batches()]
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] <= part.bytes


@pytest.mark.slow
def test_identifiers_in_parquet_are_encoded_batch_by_batch(tmp_path):
    # Arrow's own dictionary would hold every string of the row group for every batch.
    ids = pa.array([f"user-{i * 7919 % 400_000}" for i in range(400_000)])
    pq.write_table(pa.table({"id": ids}), tmp_path / "log.parquet")
    (part,) = Log(tmp_path / "log.parquet").parts([], ["id"])
    batches = list(part.batches())
    assert max(len(batch["id"].dictionary) for batch in batches) <= BATCH_ROWS
    assert [value for batch in batches for value in batch["id"].to_pylist()] == ids.to_pylist()


@pytest.mark.slow
def test_dictionary_that_runs_full_within_a_row_group(tmp_path):
    words = [f"word-{i % 60_000 if i > 100_000 else i % 3}" for i in range(300_000)]
    pq.write_table(pa.table({"w": words}), tmp_path / "log.parquet", dictionary_pagesize_limit=1 << 14)
    assert rows_of(Log(tmp_path / "log.parquet"), [], ["w"]) == {"w": words}


def test_files_that_polars_writes(tmp_path):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"k": ["a", "b", None], "x": [0.1, 0.2, 0.3]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.arrow", compat_level=pl.CompatLevel.oldest())  # Arrow 16 has no string views
    frame.write_csv(tmp_path / "a.csv")
    for name in ("a.parquet", "a.arrow", "a.csv"):
        assert rows_of(Log(tmp_path / name), ["x"], ["k"]) == {"x": [0.1, 0.2, 0.3], "k": ["a", "b", None]}


def test_columns_with_dots_and_names_that_begin_alike(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "a.b": [3, 4], "ab": ["x", "y"]}), tmp_path / "t.parquet")
    assert rows_of(Log(tmp_path / "t.parquet"), ["a"]) == {"a": [1, 2]}
    assert rows_of(Log(tmp_path / "t.parquet"), ["a.b", "ab"], ["ab"]) == {"a.b": [3, 4], "ab": ["x", "y"]}


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.arrow"])
def test_a_file_without_rows(tmp_path, name):
    FORMATS["log." + name[2:]](TABLE.slice(0, 0), tmp_path / name)
    log = Log(tmp_path / name)
    assert log.columns == TABLE.column_names
    assert rows_of(log, ["click"], ["country"]) == {"click": [], "country": []}


# ---------------------------------------------------------------- text


def read_text(path, text, columns, keys=(), **options):
    path.write_text(text)
    return rows_of(Log(path, **options), columns, keys)


def test_text_nulls(tmp_path):
    text = 'k,x\nNA,1\n,\n"",nan\n\\N,NULL\n'
    rows = read_text(tmp_path / "a.csv", text, ["x"], ["k"])
    assert rows["k"] == ["NA", None, "", None]  # Namibia is not null
    assert rows["x"][0] == 1.0
    assert rows["x"][1] is None
    assert np.isnan(rows["x"][2])  # NaN is a value that metrics refuse, null is a missing one
    assert rows["x"][3] is None
    assert read_text(tmp_path / "a.csv", "x\n1\nNA\n", ["x"], nulls=["NA"])["x"] == [1.0, None]


def test_options_of_text_that_make_no_sense(tmp_path):
    (path := tmp_path / "a.csv").write_text("0,0.5,x\n")
    for option in ({"names": "ab"}, {"nulls": "NA"}):
        with pytest.raises(LogError, match="expected a list of strings"):
            Log(path, **option)
    for delimiter in ("", '"', "\n"):
        with pytest.raises(LogError, match="expected one or more characters other than quotation marks"):
            Log(path, delimiter=delimiter)
    with pytest.raises(LogError) as caught:
        Log(path, names=["a", "b"]).parts(["a"])
    assert str(caught.value).endswith("row 0: expected 2 columns, as listed in names=, found 3; list all columns")


def test_text_delimiter(tmp_path):
    assert read_text(tmp_path / "a.csv", "a;b\n1;2\n", ["b"], delimiter=";") == {"b": [2.0]}
    assert read_text(tmp_path / "a.tsv", "a|b\n1|2\n", ["b"], delimiter="|") == {"b": [2.0]}


def test_quoted_line_breaks_across_blocks(tmp_path):
    cell = "x\n" * 50
    rows = read_text(tmp_path / "a.csv", "k,x\n" + f'"{cell}",1\n' * 30_000, ["x"], ["k"])
    assert set(rows["k"]) == {cell}
    assert len(rows["x"]) == 30_000


def test_text_numbers_that_begin_as_integers(tmp_path):
    rows = read_text(tmp_path / "a.csv", "x\n" + "0\n" * 400_000 + "0.5\n", ["x"])
    assert rows["x"][-1] == 0.5


def test_text_types_are_decided_by_all_files(tmp_path):
    (tmp_path / "1.csv").write_text("v,x,e\n007,1,\n8,0,\n")
    (tmp_path / "2.csv").write_text("v,x,e\nB12,0.5,2\n")
    log = Log(tmp_path)
    assert rows_of(log, ["x", "e"], ["v"]) == {"v": ["007", "8", "B12"], "x": [1.0, 0.0, 0.5], "e": [None, None, 2.0]}
    message = error_of(log.parts, ["v"])
    assert message == (
        f"column 'v': expected one type in all files, found double in {tmp_path}/1.csv and string in {tmp_path}/2.csv; "
        "pass types={'v': 'string'} to read the column as text"
    )
    assert rows_of(Log(tmp_path, types={"v": "string"}), ["v"])["v"] == ["007", "8", "B12"]


def test_text_keys_that_look_like_numbers(tmp_path):
    text = "version,id,big\n1.10,9007199254740993,18446744073709551615\n1.1,2,3\n"
    rows = read_text(tmp_path / "a.csv", text, [], ["version", "id", "big"])
    assert rows == {"version": ["1.10", "1.1"], "id": ["9007199254740993", "2"], "big": ["18446744073709551615", "3"]}
    rows = read_text(tmp_path / "a.csv", text, [], ["id", "big"], types={"id": "int", "big": "uint64"})
    assert rows == {"id": [9007199254740993, 2], "big": [18446744073709551615, 3]}


def test_text_times(tmp_path):
    rows = read_text(tmp_path / "a.csv", "t\n2025-06-02 00:00:00\n2025-06-02 00:00:00.5\n", ["t"])
    assert (rows["t"][1] - rows["t"][0]).total_seconds() == 0.5


def test_compressed_members_one_after_another(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x\n1\n") + gzip.compress(b"2\n"))
    assert rows_of(Log(tmp_path / "a.csv.gz"), ["x"]) == {"x": [1.0, 2.0]}


# ---------------------------------------------------------------- folders and patterns


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "log"
    for i, name in enumerate(["day=1/b.parquet", "day=1/a.parquet", "day=2/deep/er/c.parquet"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [i]}), root / name)
    hidden = ["_SUCCESS", "day=1/.a.parquet.crc", "_temporary/0/t.parquet", ".staging/s.parquet", "day=2/_committed_1"]
    for name in hidden:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"junk")
    return root


@pytest.mark.parametrize("tail", ["", "/", "/**", "/*", "/day=*", "/day=*/", "/**/*.parquet", "/day=[12]/**/*.parquet"])
def test_folders_and_patterns(folder, tail):
    log = Log(str(folder) + tail)
    assert [os.path.relpath(file, folder) for file in log.files] == [
        "day=1/a.parquet",
        "day=1/b.parquet",
        "day=2/deep/er/c.parquet",
    ]
    assert rows_of(log, ["x", "day"]) == {"x": [1, 0, 2], "day": [1, 1, 2]}


def test_several_paths_keep_their_order(folder):
    log = Log([folder / "day=2", str(folder / "day=1/b.parquet")])
    assert rows_of(log, ["x"]) == {"x": [2, 0]}


def test_the_same_file_twice_is_refused(folder):
    message = error_of(Log, [folder, folder / "day=1" / "a.parquet"])
    assert message == f"{folder}/day=1/a.parquet: named twice, so its rows would count twice; name the file once"


def test_linked_folders_are_followed_once_around(folder):
    os.symlink(folder / "day=1", folder / "day=3")
    os.symlink(folder, folder / "day=2" / "loop")
    assert rows_of(Log(folder), ["day"]) == {"day": [1, 1, 2, 3, 3]}


def test_a_name_with_pattern_characters_is_taken_as_it_is(tmp_path):
    for name in ["a[1].csv", "a1.csv"]:
        (tmp_path / name).write_text(f"x\n{len(name)}\n")
    assert rows_of(Log(tmp_path / "a[1].csv"), ["x"]) == {"x": [8.0]}


def test_partition_keys(tmp_path):
    names = ["country=US/day=03", "country=a%20b/day=-4", "country=__HIVE_DEFAULT_PARTITION__/day=5"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.csv").write_text("x\n1\n2\n")
    log = Log(tmp_path)
    assert log.columns == ["x", "country", "day"]
    assert log.schema.field("day").type == pa.dictionary(pa.int32(), pa.int64())
    assert log.schema.field("country").type == pa.dictionary(pa.int32(), pa.string())
    assert rows_of(log, ["day", "x"], ["country"]) == {
        "day": [3, 3, 5, 5, -4, -4],
        "x": [1.0, 2.0] * 3,
        "country": ["US", "US", None, None, "a b", "a b"],
    }
    assert rows_of(log, ["day"]) == {"day": [3, 3, 5, 5, -4, -4]}


def test_partition_keys_are_text_where_one_is(tmp_path):
    for name in ["v=1", "v=1b", "v=__HIVE_DEFAULT_PARTITION__"]:
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"x": [1]}), tmp_path / name / "x.parquet")
    assert sorted(rows_of(Log(tmp_path), ["v"])["v"], key=str) == ["1", "1b", None]


def test_a_column_goes_before_a_partition_key(tmp_path):
    (tmp_path / "x=7").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x=7" / "a.parquet")
    assert rows_of(Log(tmp_path), ["x"]) == {"x": [1]}


# ---------------------------------------------------------------- errors


def test_nothing_found(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    assert error_of(Log, []) == "expected at least one log, found none; pass a file, folder, pattern or URL"
    assert error_of(Log, tmp_path) == f"{tmp_path}: no files in this folder"
    assert error_of(Log, tmp_path / "a.csv") == f"{tmp_path}/a.csv: no such file or folder"
    assert error_of(Log, f"{tmp_path}/*.csv") == f"{tmp_path}/*.csv: no file matches"
    assert error_of(Log, f"{tmp_path}/*") == f"{tmp_path}/*: no file matches"
    assert issubclass(LogError, StreamMetricsError)
    assert issubclass(LogError, ValueError)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.xml", "unknown suffix '.xml'"),
        ("part-0000", "no suffix"),
        ("a.gz", "unknown suffix '.gz'"),
        ("a.xml.gz", "unknown suffix '.xml.gz'"),
        ("a.parquet.gz", "unknown suffix '.parquet.gz'"),
    ],
)
def test_unknown_suffix(tmp_path, name, what):
    (tmp_path / name).touch()
    for path in (tmp_path / name, tmp_path):
        message = error_of(Log, path)
        assert message.startswith(f"{tmp_path}/{name}: {what}; the supported suffixes are .parquet, .orc, .avro")


def test_mixed_formats(tmp_path):
    write_csv(TABLE, tmp_path / "a.csv")
    write_parquet(TABLE, tmp_path / "b.parquet")
    assert "have different formats" in error_of(Log, tmp_path)


def test_missing_column(tmp_path):
    write_parquet(TABLE, tmp_path / "a.parquet")
    log = Log(tmp_path / "a.parquet")
    there = "The columns are: user_id, country, device, click, pctr"
    assert error_of(log.parts, ["Clicks"]) == (
        f"{tmp_path}/a.parquet: there is no column 'Clicks'; did you mean 'click'? {there}"
    )
    assert error_of(log.parts, ["click"], ["zzz"]) == f"{tmp_path}/a.parquet: there is no column 'zzz'. {there}"


def test_missing_column_among_very_many(tmp_path):
    pq.write_table(pa.table({f"c{i}": [1] for i in range(100)}), tmp_path / "a.parquet")
    assert error_of(Log(tmp_path).parts, ["zzz"]).endswith("c39 and 60 more")


def test_a_file_that_lacks_a_column(tmp_path):
    write_parquet(TABLE, tmp_path / "a.parquet")
    write_parquet(TABLE.drop_columns("pctr"), tmp_path / "b.parquet")
    log = Log(tmp_path)
    assert "pctr" not in log.columns
    expected = f"{tmp_path}/b.parquet: there is no column 'pctr' (found in 1 of 2 files); pass missing_columns="
    assert error_of(log.parts, ["pctr"]).startswith(expected)
    assert len(rows_of(log, ["click"])["click"]) == 2 * ROWS


@pytest.mark.parametrize(("name", "text"), [("a.csv", "x,x\n1,2\n")])
def test_a_column_that_is_there_twice(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    expected = f"{tmp_path}/{name}: expected one column 'x', found 2; rename the other columns"
    assert error_of(Log(tmp_path / name).parts, ["x"]) == expected


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a,b\n1,2\n3\n4,5\n", "row 1: expected 2 columns, as in the header, found 1; correct the row"),
        ("a,b\n1,2\n\n3,4,5\n", "row 1: expected 2 columns, as in the header, found 3; correct the row"),
        (
            "a,b\n" + "1,2\n" * 300_000 + "3\n",
            "row 300,000: expected 2 columns, as in the header, found 1; correct the row",
        ),
        (
            "a,b\n" + "1,2\n" * 300_000 + "1,x\n",
            "row 300,000: column 'b': expected float, found 'x'; pass types={'b': 'string'} to read the column as text",
        ),
        ("", "expected a header, found an empty file; remove the file from the log"),
        (
            'a,b\n"' + "1,2\n" * 1_000_000,
            "a row is too long; if a quotation mark is never closed, pass quotes=False to read quotation marks as "
            "ordinary characters",
        ),
    ],
)
def test_broken_text(tmp_path, text, cause):
    (tmp_path / "a.csv").write_text(text)
    log = Log(tmp_path / "a.csv")
    assert error_of(lambda: [list(part.batches()) for part in log.parts(["b"])]) == f"{tmp_path}/a.csv: {cause}"


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n\xff\xfe,3\n")
    message = error_of(rows_of, Log(tmp_path / "a.csv"), [], ["a"])
    assert message.startswith(
        f"{tmp_path}/a.csv: row 1: column 'a': expected text in UTF-8, found other bytes; convert"
    )


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "stream.arrows"])
def test_truncated_files(tmp_path, name):
    FORMATS[name](TABLE, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    for keep in (0, 3, len(data) // 2 + 7):
        (tmp_path / name).write_bytes(data[:keep])
        if name in ("log.csv", "log.tsv") and keep:
            continue  # text has no end mark
        message = error_of(lambda: rows_of(Log(tmp_path / name), ["click"], ["country"]))
        assert message.startswith(f"{tmp_path / name}: ")
        assert len(message) < len(f"{tmp_path / name}: ") + 100


@pytest.mark.parametrize("index", [-1, 2, 1 << 20])
def test_codes_outside_the_dictionary(tmp_path, index):
    indices = pa.array([0, None, 1, index], pa.int32())
    countries = pa.DictionaryArray.from_arrays(indices, ["US", "DE"], safe=False)
    with ipc.new_file(tmp_path / "log.arrow", pa.schema([("country", countries.type)])) as writer:
        writer.write_batch(pa.record_batch([countries], ["country"]))
    with pytest.raises(LogError, match=r"log\.arrow: "):
        rows_of(Log(tmp_path / "log.arrow"), ["country"], ["country"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.csv.gz", "log.arrow", "log.feather", "stream.arrows"])
def test_damaged_files_raise_nothing_else(tmp_path, name):
    rng = np.random.default_rng(3)
    FORMATS[name](TABLE.slice(0, 300), tmp_path / name)
    data = (tmp_path / name).read_bytes()
    refused = 0
    for i in range(200):
        damaged = bytearray(data)
        for _ in range(rng.integers(1, 6)):
            end = rng.choice([len(data), 64])
            position = int(rng.integers(end))
            damaged[-position - 1 if i % 2 else position] = rng.integers(256)
        (tmp_path / name).write_bytes(damaged)
        try:
            rows_of(Log(tmp_path / name), ["click", "pctr"], ["country"])
        except LogError as error:
            refused += 1
            assert str(error).startswith((str(tmp_path / name), "column "))  # noqa: PT017
    assert refused > 20


def test_parquet_checksums_are_verified(tmp_path):
    table = pa.table({"x": np.random.default_rng(0).random(10_000)})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[40_000] ^= 1
    (tmp_path / "a.parquet").write_bytes(data)
    assert "could not verify page integrity" in error_of(rows_of, Log(tmp_path), ["x"])


def test_options_that_do_not_fit(tmp_path):
    write_parquet(TABLE, tmp_path / "a.parquet")
    assert "expected CSV or TSV because of delimiter=, found parquet; remove" in error_of(Log, tmp_path, delimiter=";")
    write_csv(TABLE, tmp_path / "a.csv")
    assert "expected string, int, float, bool, date, timestamp or an Arrow type" in error_of(
        Log, tmp_path / "a.csv", types={"click": "number"}
    )
    assert "no column 'clik'" in error_of(Log(tmp_path / "a.csv", types={"clik": "int64"}).parts, ["click"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    write_parquet(TABLE, tmp_path / "a.parquet")
    (tmp_path / "a.parquet").chmod(0)
    assert error_of(Log(tmp_path).parts, ["click"]) == f"{tmp_path}/a.parquet: Permission denied"


# ---------------------------------------------------------------- memory


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(tmp_path):
    table = make_table(500_000)
    for name, copies in {"one.parquet": 2, "four.parquet": 16}.items():
        with pq.ParquetWriter(tmp_path / name, table.schema, compression="none") as writer:
            for _ in range(copies):
                writer.write_table(table)
    program = """
        import resource, sys, time
        from streammetrics.io.logs import Log
        for part in Log(sys.argv[1]).parts(["click", "pctr", "user_id"], ["country"]):
            for batch in part.batches():
                time.sleep(0.002)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """

    def resident(name):
        command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / name)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1024

    grown = resident("four.parquet") - resident("one.parquet")
    assert grown < 20e6  # the larger file is 120 MB longer
