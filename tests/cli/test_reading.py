"""Options that say how a log is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.cli.specs import DEFAULT_METRICS

DECIDES = ("--primary", "ctr", "--better", "ctr=high")
BASE = ("--label", "click", "--score", "p", "--metrics", "ctr")


@pytest.fixture
def text(tmp_path: Path) -> Callable[..., Path]:
    """Write lines as a file."""

    def make(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        return path

    return make


def slices(ran: Any, name: str) -> dict[Any, int]:
    assert ran.code == 0, ran.err
    return {r["slice"][name]: r["rows"] for r in ran.records if r["by"]}


def test_the_type_of_a_key(run: Any, fails: Any, text: Any) -> None:
    path = text("a.csv", "click,p,user_id", "0,0.5,7", "1,0.5,007", "1,0.5,guest")
    ask = ("eval", path, *BASE, "--by", "user_id", "--format", "json")
    assert slices(run(*ask), "user_id") == {"7": 1, "007": 1, "guest": 1}
    assert slices(run(*ask, "--type", "user_id=string"), "user_id") == {"7": 1, "007": 1, "guest": 1}
    assert fails(*ask, "--type", "user_id=int") == (
        f"{path}: row 2: column 'user_id': expected int, found 'guest'; pass --type user_id=string to read the column as "
        "text"
    )
    number = text("b.csv", "click,p,user_id", "0,0.5,7", "1,0.5,007")
    ask = ("eval", number, *BASE, "--by", "user_id", "--format", "json")
    assert slices(run(*ask, "--type", "user_id=int"), "user_id") == {7: 2}
    for wrong in ("user_id", "=int", "user_id="):
        assert "--type: expected NAME=TYPE, such as user_id=int" in fails(*ask, "--type", wrong)
    assert "expected string, int, float, bool" in fails(*ask, "--type", "user_id=number")
    assert "--type user_id: expected one type, found int and string" in fails(
        *ask, "--type", "user_id=int", "--type", "user_id=string"
    )


def test_states_of_two_kinds_of_keys_name_the_option(run: Any, fails: Any, text: Any, tmp_path: Path) -> None:
    csv = text("a.csv", "click,p,k", "0,0.5,7", "1,0.5,8")
    pq.write_table(pa.table({"click": [0, 1], "p": [0.5, 0.5], "k": [7, 9]}), parquet := tmp_path / "b.parquet")
    for log, saved in ((csv, "a.smet"), (parquet, "b.smet")):
        assert run("eval", log, *BASE, "--by", "k", "--save", tmp_path / saved).code == 0
    said = fails("merge", tmp_path / "a.smet", tmp_path / "b.smet", "-o", tmp_path / "c.smet")
    assert "--type NAME=string" in said
    assert "--type KEY=string" in fails("eval", csv, parquet, *BASE)
    assert run("eval", parquet, *BASE, "--by", "k", "--type", "k=string", "--save", tmp_path / "b.smet").code == 0
    assert run("merge", tmp_path / "a.smet", tmp_path / "b.smet", "-o", tmp_path / "c.smet").code == 0
    assert sm.load(tmp_path / "c.smet")["by k"].keys == ["7", "8", "9"]


def test_missing_values(run: Any, fails: Any, text: Any) -> None:
    path = text("a.csv", "click,p", "0,0.5", "1,N/A", "1,0.25")
    ask = ("eval", path, "--label", "click", "--score", "p", "--metrics", "predicted_ctr", "--format", "json")
    assert fails(*ask).endswith(
        "row 1: column 'p': expected float, found 'N/A'; pass --nulls 'N/A' to read this text as a missing value"
    )
    ran = run(*ask, "--nulls", "NA,N/A", "--on-invalid", "drop")
    assert ran.values == {"predicted_ctr": 0.375}


def test_quotes(run: Any, fails: Any, text: Any) -> None:
    path = text("a.csv", "k,click,p", "a,0,0.5", '"foo,1,0.5', "b,1,0.25", '"bar,0,0.5', "d,0,0.5")
    assert "pass --no-quotes to read quotation marks as ordinary characters" in fails("eval", path, *BASE)
    assert run("eval", path, *BASE, "--no-quotes", "--format", "json").values == {"ctr": 0.4}


@pytest.mark.parametrize(("delimiter", "asked"), [("::", "::"), ("||", "||"), ("\t", "tab"), (";", ";"), ("é", "é")])
def test_delimiters_and_no_header(run: Any, text: Any, delimiter: str, asked: str) -> None:
    path = text("a.csv", *(delimiter.join(row) for row in (["0", "0.5", "a:b"], ["1", "0.5", "c|d"])))
    ask = ("--delimiter", asked, "--columns", "click,p,k", "--by", "k", "--format", "json")
    assert slices(run("eval", path, *BASE, *ask), "k") == {"a:b": 1, "c|d": 1}


@pytest.mark.parametrize(("delimiter", "named"), [(";", "';'"), ("\t", r"'\t'"), ("|", "'|'")])
def test_another_delimiter_is_named(fails: Any, text: Any, delimiter: str, named: str) -> None:
    path = text("a.csv", delimiter.join(["click", "p"]), delimiter.join(["1", "0.5"]))
    assert f"--delimiter {named}" in fails("eval", path, *BASE)
    assert f"--delimiter {named}" in fails("eval", path)


def test_a_format_that_is_taken_for_an_option(fails: Any, text: Any) -> None:
    path = text("a.csv", "click,p", "1,0.5")
    assert fails("eval", path, *BASE, "--json") == "there is no option --json; did you mean --format json?"


def test_help_is_grouped(run: Any) -> None:
    said = run("eval", "--help").out
    assert "Again" not in said
    groups = ["Columns", "Metrics", "Slices and windows", "Intervals and comparisons", "Reading the log", "Output"]
    assert [group for group in groups if f" {group} " in said] == groups


@pytest.mark.parametrize("command", [(), ("eval",), ("serve",), ("serve", "token")])
def test_help_shows_no_type_for_help(run: Any, command: tuple[str, ...]) -> None:
    assert "<bool>" not in run(*command, "--help").out


def test_help_names_the_default_metrics(run: Any) -> None:
    said = run("eval", "--help").out
    assert "LOG, --label and --score suffice" in said
    assert all(name in said for name in DEFAULT_METRICS)


def test_a_column_with_a_comma(run: Any, tmp_path: Path) -> None:
    columns = {"click": [0, 1, 1], "p": [0.5] * 3, "a,b": ["u", "v", "v"], "c": ["x", "x", "y"]}
    pq.write_table(pa.table(columns), path := tmp_path / "a.parquet")
    assert slices(run("eval", path, *BASE, "--by", "a,b", "--format", "json"), "a,b") == {"u": 1, "v": 2}
    records = run("eval", path, *BASE, "--by", '"a,b", c', "--format", "json").records
    assert [r["slice"] for r in records if r["by"]] == [
        {"a,b": a, "c": c} for a, c in (("u", "x"), ("v", "x"), ("v", "y"))
    ]
    grouped = run("eval", path, *BASE[:4], "--group", "a,b", "--metrics", "group_auc", "--format", "json")
    assert grouped.code == 0


def test_columns_that_some_files_lack(run: Any, fails: Any, text: Any) -> None:
    text("log/a.csv", "click,p", "0,0.5")
    folder = text("log/b.csv", "click,p,country", "1,0.5,br").parent
    ask = ("eval", folder, *BASE, "--by", "country", "--format", "json")
    assert fails(*ask).endswith(
        "(found in 1 of 2 files); pass --missing-columns null to read nulls instead. The columns are: click, p"
    )
    assert slices(run(*ask, "--missing-columns", "null"), "country") == {None: 1, "br": 1}


def test_files_of_any_suffix(run: Any, fails: Any, text: Any) -> None:
    path = text("ratings.dat", "1::0.5::a", "0::0.5::b")
    ask = ("eval", path, *BASE, "--format", "json")
    assert "unknown suffix '.dat'" in fails(*ask)
    assert run(*ask, "--delimiter", "::", "--columns", "click,p,k").values == {"ctr": 0.5}


def test_arms_that_look_like_numbers(run: Any, text: Any) -> None:
    rows = [f"{i % 2},0.5,{i % 2:02},{i}" for i in range(200)]
    path = text("a.csv", "click,p,arm,u", *rows)
    ran = run("eval", path, *BASE, "--unit", "u", "--arm", "arm", "--control", "00", "--format", "json", *DECIDES)
    assert ran.code == 0, ran.err
    assert {r["slice"]["arm"] for r in ran.records if r["by"]} == {"00", "01"}


def test_a_label_that_is_text_from_some_row_on(run: Any, fails: Any, text: Any) -> None:
    path = text("a.csv", "click,p", *["0,0.5"] * 60_000, "yes,0.5")
    ask = ("eval", path, *BASE, "--pos-label", "yes", "--format", "json")
    assert "--type click=string to compare" in fails(*ask) or "--pos-label yes" in fails(*ask)
    assert run(*ask, "--type", "click=string").values == {"ctr": 1 / 60_001}
