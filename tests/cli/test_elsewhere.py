"""The command line reads what is elsewhere, and says what is missing."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import streammetrics as sm

BASE = ("--label", "click", "--score", "pctr_b", "--metrics", "auc,log_loss", "--bits", 12)


@pytest.fixture
def whole(run, log, tmp_path):
    """The digest of the log on disk."""
    assert run("eval", log, *BASE, "--by", "variant", "--save", tmp_path / "whole").code == 0
    return sm.load(tmp_path / "whole").digest()


def test_a_query(run, fails, log, tmp_path, whole):
    pytest.importorskip("duckdb")
    asked = f"select * from '{log}/*/*.parquet'"
    ran = run("eval", "--sql", asked, *BASE, "--by", "variant", "--save", tmp_path / "x")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("sql:select * from '")
    assert sm.load(tmp_path / "x").digest() == whole
    android = run("eval", "--sql", f"{asked} where device = 'android'", *BASE, "--format", "json").values
    assert android == run("eval", log, *BASE, "--where", "device=android", "--format", "json").values
    assert "Catalog Error" in fails("eval", "--sql", "select * from nothing", *BASE)
    assert "no column 'click'" in fails("eval", "--sql", "select 1 as x", *BASE)
    line = fails("eval", "--sql", asked, *BASE, "--checkpoint", tmp_path / "c")
    assert "its pass cannot be resumed" in line


def test_which_log(fails, log):
    assert fails("eval", *BASE) == "expected a log; name its files, or pass a query with --sql"
    assert fails("eval", log, "--sql", "select 1", *BASE) == (
        "expected either the files of a log or --sql, found both; leave out one of them"
    )


def test_a_url(run, log, tmp_path, whole):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.put(str(log), "/clicks", recursive=True)
    ran = run("eval", "memory://clicks", *BASE, "--by", "variant", "--save", tmp_path / "x")
    assert (ran.code, ran.err) == (0, "")
    assert sm.load(tmp_path / "x").digest() == whole
    checked = run("eval", "memory://clicks/*/*.parquet", *BASE, "--checkpoint", tmp_path / "c", "--by", "variant")
    assert checked.code == 0
    system.store.clear()


def test_a_delta_table(run, table, tmp_path, whole):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "table", table)
    for given in (tmp_path / "table", f"delta:{tmp_path / 'table'}"):
        assert run("eval", given, *BASE, "--by", "variant", "--save", tmp_path / "x").code == 0
        assert sm.load(tmp_path / "x").digest() == whole


def test_an_iceberg_table(run, fails, table, tmp_path, whole):
    catalog = pytest.importorskip("pyiceberg.catalog")
    pytest.importorskip("sqlalchemy")
    where = {"uri": f"sqlite:///{tmp_path / 'c.db'}", "warehouse": f"file://{tmp_path}"}
    made = catalog.load_catalog("here", type="sql", **where)
    made.create_namespace("ns")
    made.create_table("ns.log", schema=table.schema).append(table)
    location = made.load_table("ns.log").metadata_location
    assert run("eval", f"iceberg:{location}", *BASE, "--by", "variant", "--save", tmp_path / "x").code == 0
    assert sm.load(tmp_path / "x").digest() == whole


@pytest.mark.parametrize("given", ["s3://b/x.parquet", "delta:x", "iceberg:a/b.c"])
def test_what_is_not_there_is_one_line(fails, given, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert fails("eval", given, *BASE).startswith(f"{given}: ")


def test_a_folder_of_a_delta_table_is_not_read_as_files(run, fails, table, tmp_path):
    """Also where deltalake is not installed: its rows that were deleted would count."""
    folder = tmp_path / "tables" / "one"
    (folder / "_delta_log").mkdir(parents=True)
    pq.write_table(table, folder / "0.parquet")
    assert f"name it delta:{folder}" in fails("eval", folder.parent, *BASE)
    assert fails("eval", folder, *BASE).startswith(f"delta:{folder}: ")


def test_help_says_all(run):
    said = " ".join(run("eval", "--help").out.replace("│", " ").split())
    for word in ("--sql", "--checkpoint", "s3://bucket/log", "_delta_log", "iceberg:"):
        assert word in said
