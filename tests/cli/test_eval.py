from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.cli.specs import DEFAULT_METRICS

BASE = ("--label", "click", "--score", "pctr_b")


def columns(table: pa.Table) -> dict[str, object]:
    return {"y_true": table["click"], "y_score": table["pctr_b"]}


class TestScreen:
    def test_default_metrics_equal_those_of_the_library(self, run, log, table):
        ran = run("eval", log, *BASE, "--format", "json")
        assert ran.code == 0
        assert ran.err == ""
        expected = sm.MetricCollection([sm.extend.METRICS[tag]() for tag in DEFAULT_METRICS]).update(columns(table))
        assert ran.values == expected.compute()
        assert [r["metric"] for r in ran.records] == list(DEFAULT_METRICS)

    def test_records(self, run, log, table):
        auc, ctr = run("eval", log, *BASE, "--metrics", "auc,ctr", "--format", "json").records
        metric = sm.AUC().update(columns(table))
        assert (auc["bound_low"], auc["bound_high"]) == metric.bounds()
        assert (auc["interval_low"], auc["interval_high"]) == (None, None)  # nobody said that rows are independent
        assert (auc["by"], auc["slice"], auc["other"], auc["dropped"], auc["reason"]) == ([], {}, False, {}, None)
        assert auc["rows"] == len(table)
        assert auc["positives"] == sum(table["click"].to_pylist())
        assert ctr["bound_low"] is None
        assert ctr["weight"] == len(table)

    def test_table_in_a_pipe_is_plain_aligned_text(self, run, log):
        ran = run("eval", log, *BASE, "--metrics", "auc,ctr", "--bits", 12)
        assert "\x1b" not in ran.out
        lines = ran.out.splitlines()
        assert lines[0] == "7 files, 30,000 rows"
        assert lines[2].split() == ["metric", "value"]
        assert lines[3].startswith("auc  ")
        assert "±" in lines[3]
        assert ["rows", "30,000"] in [line.split() for line in lines]

    def test_csv_reads_back(self, run, log):
        ran = run(
            "eval", log, *BASE, "--metrics", "auc,ctr", "--by", "variant", "--by", "country,device", "--format", "csv"
        )
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        assert list(rows[0])[:4] == ["model", "slice", "metric", "value"]
        assert list(rows[0])[-3:] == ["variant", "country", "device"]
        assert [r["slice"] for r in rows[:6]] == ["", "", "variant=A", "variant=A", "variant=B", "variant=B"]
        assert {r["country"] for r in rows if r["device"]} >= {"NA", "null", "US"}
        assert {r["slice"] for r in rows if r["device"] == "ios"} >= {
            "country=US,device=ios",
            "country=null,device=ios",
        }
        json = run("eval", log, *BASE, "--metrics", "auc,ctr", "--by", "variant", "--format", "json").records
        assert [float(r["value"]) for r in rows[:6]] == [r["value"] for r in json]
        models = ("--label", "click", "--score", "pctr_a", "--score", "pctr_b", "--metrics", "auc", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(run("eval", log, *models, "--by", "variant", "--sort", "auc").out)))
        assert [(r["model"], r["metric"]) for r in rows[:2]] == [("pctr_a", "auc"), ("pctr_b", "auc")]
        assert [r["slice"] for r in rows[2:]] == ["variant=A", "variant=A", "variant=B", "variant=B"] or [
            r["slice"] for r in rows[2:]
        ] == ["variant=B", "variant=B", "variant=A", "variant=A"]

    @pytest.mark.slow
    def test_tables_in_a_pipe_fit(self, run, log):
        models = [word for s in ("pctr_a", "pctr_b", "pcvr") for word in ("--score", s)]
        for more in ((), ("--by", "country,device,variant"), ("--score", "weight", "--on-invalid", "drop")):
            out = run("eval", log, "--label", "click", *models, *more).out
            assert max(map(len, out.splitlines())) <= 120

    def test_undefined_values_are_null_with_a_reason(self, run, write):
        path = write(click=[0, 0], pctr_b=[0.1, 0.2])
        record = run("eval", path, *BASE, "--metrics", "auc", "--format", "json").records[0]
        assert record["value"] is record["bound_low"] is None
        assert record["reason"] == "one class: no positives"
        assert "NaN: one class: no positives (1 value)" in run("eval", path, *BASE, "--metrics", "auc").out

    def test_confusion_matrix(self, run, write):
        path = write(click=[0, 0, 1, 1], pctr_b=[0.1, 0.6, 0.35, 0.8])
        args = ("eval", path, *BASE, "--metrics", "confusion_matrix", "--by", "click", "--format")
        assert run(*args, "json").records[0]["value"] == [[1, 1], [1, 1]]
        assert '"[[1, 1], [1, 1]]"' in run(*args, "csv").out
        table = run(*args, "table").out
        assert "true class down, predicted across" in table
        assert "[[1, 1], [1, 1]]" not in table.split("by click")[0]

    def test_an_empty_log(self, run, write):
        path = write(
            click=pa.array([], pa.int8()), pctr_b=pa.array([], pa.float32()), variant=pa.array([], pa.string())
        )
        records = run("eval", path, *BASE, "--by", "variant", "--format", "json").records
        assert {r["reason"] for r in records if r["metric"] == "auc"} == {"no rows"}
        assert run("eval", path, *BASE, "--by", "variant").code == 0


class TestOptions:
    def test_several_scores_in_one_pass(self, run, log, table):
        ran = run(
            "eval",
            log,
            "--label",
            "click",
            "--score",
            "pctr_a",
            "--score",
            "pctr_b",
            "--metrics",
            "auc",
            "--format",
            "json",
        )
        expected = {f"{s}/auc": sm.AUC().update(table["click"], table[s]).compute() for s in ("pctr_a", "pctr_b")}
        assert ran.values == expected
        shown = run("eval", log, "--label", "click", "--score", "pctr_a", "--score", "pctr_b")
        assert ["metric", "pctr_a", "pctr_b"] in [line.split() for line in shown.out.splitlines()]

    def test_slices(self, run, log, table):
        ran = run(
            "eval", log, *BASE, "--metrics", "auc", "--by", "variant", "--by", "country, device", "--format", "json"
        )
        for by in (["variant"], ["country", "device"]):
            named = columns(table) | {c: table[c] for c in by}
            expected = sm.Sliced(sm.AUC(), by=by).update(**named).compute()
            found = [r for r in ran.records if r["by"] == by]
            assert [tuple(r["slice"].values()) for r in found] == [
                k if isinstance(k, tuple) else (k,) for k in expected
            ]
            np.testing.assert_array_equal(
                [np.nan if r["value"] is None else r["value"] for r in found], [*expected.values()]
            )

    def test_overall_does_not_depend_on_slices(self, run, log):
        plain = run("eval", log, *BASE, "--format", "json").values
        assert run("eval", log, *BASE, "--by", "country", "--format", "json").values == plain
        assert run("eval", log, *BASE, "--by", "country", "--limit", 2, "--format", "json").values == plain

    @pytest.mark.slow
    def test_keys_of_times_keep_their_kind(self, run, write, tmp_path):
        noon = dt.datetime(2025, 6, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
        columns = {"day": [dt.date(2025, 6, 2)] * 2 + [None], "at": [noon] * 2 + [None], "ok": [True, True, None]}
        columns["price"] = [Decimal("1.50")] * 2 + [None]
        path = write(click=[0, 1, 1], pctr_b=[0.5, 0.25, 0.125], **columns)
        shown = {"day": "2025-06-02", "at": "2025-06-02T10:00:00+00:00", "ok": True, "price": "1.5"}
        for name, key in shown.items():
            args = ("eval", path, *BASE, "--metrics", "ctr", "--by", name)
            assert [r["slice"][name] for r in run(*args, "--format", "json").records if r["by"]] == [None, key]
            for form in ("table", "csv"):
                assert str(key) in run(*args, "--format", form, "--save", tmp_path / name).out
            assert str(key) in run("show", tmp_path / name).out
            found = run("eval", path, *BASE, "--group", name, "--where", f"{name}!=null", "--format", "json")
            assert found.values["group_auc"] == 0.0

    @pytest.mark.slow
    def test_limit_merges_the_others(self, run, log):
        ran = run("eval", log, *BASE, "--metrics", "ctr", "--by", "country", "--limit", 3, "--format", "json")
        slices = [r for r in ran.records if r["by"]]
        assert [r["other"] for r in slices] == [False, False, False, True]
        assert sum(r["rows"] for r in slices) == 30_000
        assert "\n(other) " in run("eval", log, *BASE, "--by", "country", "--limit", 3).out
        both = run("eval", log, *BASE, "--by", "country,device", "--limit", 3).out
        assert re.search(r"\n\(other\) +\(other\) ", both)
        assert "\nnull" not in both
        assert "(other)" in run("eval", log, *BASE, "--by", "country", "--limit", 3, "--format", "csv").out

    @pytest.mark.slow
    def test_limit_keeps_the_slices_of_most_rows(self, run, log, table, tmp_path, fails):
        counts = table.group_by("country").aggregate([([], "count_all")]).to_pylist()
        most = sorted(counts, key=lambda r: -r["count_all"])[:3]
        options = (*BASE, "--metrics", "ctr", "--by", "country", "--by", "variant", "--by", "device,day", "--limit", 3)
        ran = run("eval", log, *options, "--format", "json", "--threads", 3)
        kept = [r for r in ran.records if r["by"] == ["country"]]
        assert {r["slice"]["country"]: r["rows"] for r in kept[:-1]} == {r["country"]: r["count_all"] for r in most}
        assert kept[-1]["other"]
        assert [r["slice"]["variant"] for r in ran.records if r["by"] == ["variant"] and not r["other"]] == ["A", "B"]
        assert len([r for r in ran.records if r["by"] == ["device", "day"]]) == 4
        share = 1 - sum(r["count_all"] for r in most) / len(table)
        out = run("eval", log, *options).out
        assert f"3 with the most rows (or pinned); (other) has {share:.1%} of the rows" in out
        hashed = sm.Sliced(sm.CTR(), by="country", limit=3).update(y_true=table["click"], country=table["country"])
        for more in (("--keep", "hash"), ("--save", tmp_path / "x")):
            found = run("eval", log, *options, *more, "--format", "json").records
            assert [r["slice"]["country"] for r in found if r["by"] == ["country"] and not r["other"]] == hashed.keys
        assert "3 with the smallest hash; (other) has" in run("show", tmp_path / "x").out
        run("eval", log, *options, "--keep", "rows", "--save", tmp_path / "y")
        assert sm.load(tmp_path / "y")["by country"].compute().keys() == {r["country"] for r in most}

    def test_limit_by_rows_of_keys_of_every_kind(self, run, write):
        day = dt.date(2025, 6, 2)
        noon = dt.datetime(2025, 6, 2, 12, tzinfo=dt.UTC)
        columns = {
            "i": [5, 5, 5, 2, 2, None, 1],
            "s": ["b", "b", "b", None, None, "a", "c"],
            "day": [day] * 3 + [None] * 2 + [day.replace(day=1), day.replace(day=3)],
            "at": [noon] * 3 + [None] * 2 + [noon.replace(day=1), noon.replace(day=3)],
            "price": [Decimal("1.50")] * 3 + [None] * 2 + [Decimal("0.10"), Decimal("7.00")],
        }
        path = write(click=[0, 1, 1, 0, 1, 0, 1], **columns)
        for name, values in columns.items():
            ran = run(
                "eval", path, "--label", "click", "--metrics", "ctr", "--by", name, "--limit", 2, "--format", "json"
            )
            found = [r for r in ran.records if r["by"]]
            assert sorted((r["rows"], r["other"]) for r in found) == [(2, False), (2, True), (3, False)], name
            shown = {str(r["slice"][name])[:10] for r in found if not r["other"]}
            assert shown == {str(v)[:10] if v != Decimal("1.50") else "1.5" for v in (values[0], values[3])}

    def test_top_shows_the_largest_slices(self, run, log):
        out = run("eval", log, *BASE, "--metrics", "ctr", "--by", "country", "--top", 2).out
        assert "US" in out
        assert "IN" in out
        assert "BR" not in out
        assert "and 10 slices with fewer rows: --top 12 shows them" in out
        out = run("eval", log, *BASE, "--metrics", "ctr", "--by", "country", "--top", 11).out
        assert "and 1 slice with fewer rows: --top 12 shows it" in out

    def test_sort_shows_the_worst_slices_first(self, run, log, table):
        options = ("--metrics", "calibration", "--by", "country", "--sort", "calibration", "--min-rows", 1000)
        lines = [line.split() for line in run("eval", log, *BASE, *options).out.splitlines()]
        sliced = sm.Sliced(sm.Calibration(), by="country").update(**columns(table), country=table["country"])
        expected = [r["country"] for r in sliced.table(sort="calibration", min_rows=1000)]
        assert [line[0] for line in lines if line and line[0] in expected] == expected
        assert 1 < len(expected) < len(sliced)

    @pytest.mark.slow
    def test_sort_of_several_models_is_by_the_worst(self, run, log, table):
        models = ("--label", "click", "--score", "pctr_a", "--score", "pctr_b", "--metrics", "calibration")
        options = ("--by", "country", "--min-rows", 1000)
        sliced = {s: sm.Sliced(sm.Calibration(), by="country") for s in ("pctr_a", "pctr_b")}
        for s, one in sliced.items():
            one.update(table["click"], table[s], country=table["country"])
        rows = {k: sliced["pctr_a"][k].state.facts()["rows"] for k in sliced["pctr_a"]}

        def bad(key, names):
            found = [sliced[s][key].compute() for s in names]
            return max(max(v, 1 / v) for v in found)

        for sort, names in (("calibration", list(sliced)), ("pctr_b/calibration", ["pctr_b"])):
            keys = [k for k in rows if rows[k] >= 1000]
            expected = sorted(keys, key=lambda k: -bad(k, names))
            lines = [line.split() for line in run("eval", log, *models, *options, "--sort", sort).out.splitlines()]
            assert [line[0] for line in lines if line and line[0] in rows] == [str(k) for k in expected]
        page = log.parent / "page.html"
        assert run("eval", log, *models, *options, "--sort", "calibration", "--report", page).code == 0
        text = page.read_text().partition("By country")[2]
        expected = sorted((k for k in rows if rows[k] >= 1000), key=lambda k: -bad(k, list(sliced)))
        places = [text.index(f">{k}<") for k in expected]
        assert places == sorted(places)
        assert all(f">{k}<" not in text for k in rows if k is not None and rows[k] < 1000)

    def test_sort_by_what_is_not_there(self, fails, log):
        assert "--sort: sort= must be rows" in fails("eval", log, *BASE, "--by", "country", "--sort", "auk")

    def test_partition_keys_are_columns(self, run, log):
        records = run("eval", log, *BASE, "--metrics", "ctr", "--by", "day", "--format", "json").records
        assert [r["slice"]["day"] for r in records if r["by"]] == [f"2025-06-0{d}" for d in range(2, 9)]

    def test_where(self, run, log, table):
        ran = run(
            "eval",
            log,
            "--label",
            "convert",
            "--score",
            "pcvr",
            "--where",
            "click",
            "--metrics",
            "auc",
            "--format",
            "json",
        )
        clicked = table.filter(pa.compute.equal(table["click"], 1))
        assert ran.values["auc"] == sm.AUC().update(clicked["convert"], clicked["pcvr"]).compute()
        assert ran.records[0]["dropped"] == {"where": len(table) - len(clicked)}
        out = run("eval", log, "--label", "convert", "--score", "pcvr", "--where", "click", "--metrics", "auc").out
        assert "left out: click is 0" in out

    @pytest.mark.slow
    def test_where_compares(self, run, log, table, fails):
        columns = table.select(["click", "pctr_b", "country", "weight"]).to_pydict()
        rows = list(zip(*columns.values(), strict=True))
        for conditions, holds in (
            (["country=US"], lambda r: r[2] == "US"),
            (["country!=US"], lambda r: r[2] is not None and r[2] != "US"),
            (["country=null"], lambda r: r[2] is None),
            (["weight>1.5", "click = 1"], lambda r: r[3] > 1.5 and r[0] == 1),
            (["click", "country='IN'"], lambda r: r[0] == 1 and r[2] == "IN"),
            (["pctr_b<=0.01", "weight>=1", "country<J"], lambda r: r[1] <= 0.01 and r[3] >= 1 and (r[2] or "Z") < "J"),
        ):
            kept = [r for r in rows if holds(r)]
            options = [word for c in conditions for word in ("--where", c)]
            ran = run("eval", log, *BASE, *options, "--metrics", "ctr,predicted_ctr", "--format", "json")
            task = sm.MetricCollection(sm.CTR(), sm.PredictedCTR())
            expected = task.update([r[0] for r in kept], np.array([r[1] for r in kept], np.float32))
            assert ran.values == expected.compute()
            assert 0 < len(kept) < len(rows)
            assert ran.records[0]["dropped"] == {"where": len(rows) - len(kept)}
        assert "left out: not country=US" in run("eval", log, *BASE, "--where", "country=US").out
        assert "where weight>x: expected a value of type float, as in column 'weight'" in fails(
            "eval", log, *BASE, "--where", "weight>x"
        )
        assert "no column 'contry'; did you mean 'country'" in fails("eval", log, *BASE, "--where", "contry=US")

    @pytest.mark.slow
    def test_where_of_every_type(self, run, write, fails):
        day = dt.date(2025, 6, 2)
        noon = dt.datetime(2025, 6, 2, 12, tzinfo=dt.UTC)
        columns = {
            "flag": [True, False, None],
            "day": [day, dt.date(2025, 7, 1), None],
            "at": [noon, noon.replace(day=3), None],
        }
        columns |= {
            "id": [7, 2**60 + 1, None],
            "price": [Decimal("1.50"), Decimal("2.00"), None],
            "title": [b"x", b"y", None],
        }
        path = write(click=[1, 0, 0], pctr_b=[0.5, 0.25, 0.125], **{"a=b": [0, 1, 0]}, **columns)
        good = ["flag=true", "flag!=false", "day=2025-06-02", "day<2025-06-30", "at<2025-06-03", "id=7", "id<7.5"]
        good += ["at=2025-06-02T14:00:00+02:00", "price=1.5", "price<2", "title=x", f"id!={2**60 + 1}"]
        for condition in good:
            ran = run("eval", path, *BASE, "--where", condition, "--metrics", "predicted_ctr", "--format", "json")
            assert ran.values == {"predicted_ctr": 0.5}, condition
        ran = run("eval", path, *BASE, "--where", "a=b", "--metrics", "predicted_ctr", "--format", "json")
        assert ran.values == {"predicted_ctr": 0.25}  # a column that is called so
        for bad in ("flag=maybe", "day>soon", "id>x", "price=dear"):
            assert "expected a value of type" in fails("eval", path, *BASE, "--where", bad)
        assert "expected 0 or 1, found 7" in fails("eval", path, *BASE, "--where", "id", "--where", "flag=true")

    def test_where_in_text(self, run, tmp_path):
        path = tmp_path / "log.csv"
        path.write_text("click,pctr_b,is_test,country,price\n1,0.5,false,br,3\n0,0.25,true,br,1\n0,0.125,,de,\n")
        for condition in ("is_test=false", "price>=2.5", "is_test!=true"):
            ran = run(
                "eval",
                path,
                *BASE,
                "--where",
                condition,
                "--by",
                "country",
                "--metrics",
                "predicted_ctr",
                "--format",
                "json",
            )
            assert ran.values == {"predicted_ctr": 0.5}, condition

    def test_weight(self, run, log, table):
        ran = run("eval", log, *BASE, "--weight", "weight", "--metrics", "auc,log_loss", "--format", "json")
        expected = sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(**columns(table), sample_weight=table["weight"])
        assert ran.values == expected.compute()
        assert ran.records[0]["weight"] != 30_000

    def test_logits(self, run, write):
        z = np.array([-2.0, 0.5, 1.0, -1.0])
        path = write(click=[0, 1, 1, 0], pctr_b=z)
        ran = run("eval", path, *BASE, "--scale", "logit", "--metrics", "auc,log_loss", "--format", "json")
        assert ran.values["log_loss"] == pytest.approx(np.mean(np.log1p(np.exp(-np.abs(z)))))
        assert ran.values["auc"] == 1.0

    def test_real_scores_get_the_metrics_that_suit_them(self, run, write):
        ran = run("eval", write(click=[0, 1], pctr_b=[-300.0, 40.0]), *BASE, "--scale", "real", "--format", "json")
        assert ran.values == {"auc": 1.0, "average_precision": 1.0}

    def test_bits(self, run, log, table):
        record = run("eval", log, *BASE, "--metrics", "auc", "--bits", 10, "--format", "json").records[0]
        assert record["value"] == sm.AUC(bits=10).update(columns(table)).compute()

    def test_metrics_are_spelled_as_they_are_named(self, run, log):
        names = "precision@0.1,auc@0.2,f2,f0.5@0.1,copc,normalized_entropy:base_rate=0.02,log_loss:eps=1e-6"
        assert list(run("eval", log, *BASE, "--metrics", names, "--format", "json").values) == names.split(",")

    def test_labels_alone_need_no_score(self, run, log, fails):
        assert "ctr" in run("eval", log, "--label", "click", "--metrics", "ctr", "--format", "json").values
        assert fails("eval", log, "--label", "click", "--metrics", "ctr,auc") == (
            "auc: expected a column of scores; name it with --score"
        )

    @pytest.mark.parametrize(
        ("name", "delimiter"), [("log.csv", ","), ("log.tsv", "\t"), ("log.csv.gz", ";"), ("log.arrow", "")]
    )
    def test_formats(self, run, table, tmp_path, name, delimiter):
        small = table.select(["click", "pctr_b", "variant"]).slice(0, 500)
        path = tmp_path / name
        if delimiter:
            plain = io.BytesIO()
            pa.csv.write_csv(small, plain, pa.csv.WriteOptions(delimiter=delimiter))
            path.write_bytes(gzip.compress(plain.getvalue()) if name.endswith("gz") else plain.getvalue())
        else:
            pa.feather.write_feather(small, path)
        extra = ("--delimiter", delimiter) if delimiter == ";" else ()
        ran = run("eval", path, *BASE, *extra, "--metrics", "auc", "--by", "variant", "--format", "json")
        as_read = small["pctr_b"].to_numpy() if not delimiter else [float(str(v)) for v in small["pctr_b"].to_numpy()]
        assert ran.values["auc"] == sm.AUC().update(small["click"], np.asarray(as_read)).compute()


class TestSameBits:
    @pytest.fixture
    def digest(self, run, tmp_path):
        def make(*arguments: object) -> str:
            path = tmp_path / "state.smet"
            assert run("eval", *arguments, "--save", path).code == 0
            return sm.load(path).digest()

        return make

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "more",
        [(), ("--weight", "weight"), ("--by", "country"), ("--by", "country,device", "--limit", "7", "--by", "day")],
    )
    def test_any_number_of_threads(self, log, digest, more):
        assert len({digest(log, *BASE, *more, "--threads", n) for n in (1, 2, 5)}) == 1

    def test_files_in_any_order(self, log, digest):
        files = sorted(log.rglob("*.parquet"))
        assert digest(*files, *BASE, "--by", "country") == digest(*reversed(files), *BASE, "--by", "country")

    @pytest.mark.slow
    def test_dropped_rows_too(self, write, digest):
        rng = np.random.default_rng(3)
        score = rng.random(300_000)
        score[::97] = np.nan
        path = write(click=rng.integers(0, 2, 300_000).astype(np.int8), pctr_b=score)
        assert len({digest(path, *BASE, "--on-invalid", "drop", "--threads", n) for n in (1, 2, 5)}) == 1


class TestDownSampling:
    """With correction NE, calibration and CTR agree with the full log; without, they visibly do not."""

    NAMES = "auc,average_precision,normalized_entropy,calibration,ctr"

    @pytest.mark.slow
    @pytest.mark.parametrize("sampled_scale", [False, True])
    def test_correction(self, run, tmp_path, sampled_scale):
        from streammetrics.io.demo import write_demo_log

        write_demo_log(tmp_path / "full", 200_000)
        write_demo_log(tmp_path / "sampled", 200_000, negative_rate=0.1, sampled_scale=sampled_scale)
        args = (*BASE, "--metrics", self.NAMES, "--format", "json")
        corrects = "both" if sampled_scale else "rows"
        full, plain = (run("eval", tmp_path / f, *args).values for f in ("full", "sampled"))
        fixed = run("eval", tmp_path / "sampled", *args, "--negative-rate", 0.1, "--corrects", corrects).values
        assert fixed == pytest.approx(full, rel=0.04)
        assert abs(plain["normalized_entropy"] / full["normalized_entropy"] - 1) > 10 * abs(
            fixed["normalized_entropy"] / full["normalized_entropy"] - 1
        )
        assert plain["ctr"] > 5 * full["ctr"]
        assert plain["average_precision"] > 2 * full["average_precision"]
        if not sampled_scale:
            assert plain["calibration"] < 0.2 * full["calibration"]

    def test_scores_alone(self, run, write):
        path = write(click=[0, 1], pctr_b=[0.5, 0.5])
        args = (*BASE, "--metrics", "predicted_ctr", "--negative-rate", 0.1, "--corrects", "score", "--format", "json")
        assert run("eval", path, *args).values["predicted_ctr"] == pytest.approx(0.1 / 1.1)


class TestInvalidRows:
    def test_drop_counts_by_reason(self, run, write):
        path = write(click=[0, 1, None, 2, 1], pctr_b=[0.1, 0.2, 0.3, 0.4, 7.0])
        ran = run("eval", path, *BASE, "--metrics", "auc,log_loss", "--on-invalid", "drop", "--format", "json")
        assert ran.records[0]["dropped"] == {"y_true": 2, "y_score": 1}
        assert ran.records[0]["rows"] == 2
        out = run("eval", path, *BASE, "--metrics", "auc,log_loss,ctr", "--on-invalid", "drop").out
        assert "dropped: bad click" in out
        assert "dropped: bad pctr_b" in out
        assert "rows of ctr" in out

    def test_a_bad_score_names_file_column_and_row(self, fails, write):
        score = np.full(300_000, 0.5)
        score[290_001] = 1.5
        path = write(click=np.zeros(300_000, np.int8), pctr_b=score)
        line = fails("eval", path, *BASE)
        assert "pctr_b: expected a probability in [0, 1]" in line
        assert f"found 1.5 in row 290,001 of {path}" in line
        assert "--on-invalid drop" in line
        assert "--scale logit" in line

    def test_a_bad_label(self, fails, write):
        path = write(click=[0, 1, 5], pctr_b=[0.1, 0.2, 0.3])
        assert f"click: expected 0 or 1, found 5 in row 2 of {path}" in fails("eval", path, *BASE)

    def test_a_column_that_cannot_be_a_score(self, fails, write):
        path = write(click=[0, 1], pctr_b=["a", "b"])
        assert fails("eval", path, *BASE).startswith(f"{path}: row 0: column 'pctr_b': expected float, found 'a'")

    def test_too_many_slices(self, fails, write, monkeypatch):
        monkeypatch.setattr("streammetrics.collect.definition.Definition.memory_limit", 1 << 16)
        n = 5000
        path = write(click=np.zeros(n, np.int8), pctr_b=np.full(n, 0.5), user=np.arange(n))
        line = fails("eval", path, *BASE, "--metrics", "auc", "--by", "user")
        assert "--limit N" in line
        assert "--bits" in line


def test_threshold_of_real_scores(run, log):
    shown = run("eval", log, "--label", "click", "--score", "pctr_b", "--metrics", "recall@3", "--scale", "real")
    assert shown.code == 0
    assert "recall@3" in shown.out


class TestMistakes:
    def test_a_missing_column_names_those_there_are(self, fails, log):
        line = fails("eval", log, "--label", "clik", "--score", "pctr_b")
        assert "no column 'clik'; did you mean 'click'? The columns are: " in line
        assert "pctr_a, pctr_b" in line

    @pytest.mark.parametrize(
        ("arguments", "part"),
        [
            (("--metrics", "aucc"), "there is no metric 'aucc'; did you mean 'auc'?"),
            (("--metrics", "logloss"), "did you mean 'log_loss'?"),
            (("--metrics", "ne"), "did you mean 'normalized_entropy'?"),
            (("--metrics", "topk"), "there is no metric 'topk'; names that contain 'top': "),
            (("--metrics", "f1_each"), "names that contain 'f1': f1; `streammetrics catalog` lists all"),
            (("--metrics", "precision:threshold=0.05,0.1"), "found '0.1'; a comma separates metrics, so write "),
            (("--metrics", "auc:pos_label=1"), "'pos_label'; name the positive label with --pos-label VALUE"),
            (
                ("--metrics", "recall@20"),
                "recall@20: 20 is a threshold, but scores are in [0, 1]; for the recall among the first 20 of each list, "
                "use --task-type ranking --query COLUMN --metrics recall_at_k@20; ",
            ),
            (
                ("--metrics", "recall@20", "--task-type", "ranking", "--query", "user"),
                "of each list, use --metrics recall_at_k@20; ",
            ),
            (
                ("--metrics", "f1@-1"),
                "-1 is a threshold, but scores are in [0, 1]; set a threshold in [0, 1]; for other",
            ),
            (
                ("--metrics", "recall@0.5", "--task-type", "ranking", "--query", "user"),
                "reads this column; add a metric of lists, such as ndcg, to --metrics, or remove --query",
            ),
            (("--metrics", "auc,auc"), "the metric auc is named twice"),
            (("--metrics", ","), "expected at least one metric, found none"),
            (("--metrics", "ks@3"), "ks takes no number after @"),
            (("--metrics", "auc:bit=9"), "did you mean 'bits'?"),
            (("--metrics", "auc:bits"), "expected a setting such as name=value, found 'bits'"),
            (("--metrics", "auc:bits=99"), "bits must be at least 8 and at most 24"),
            (("--metrics", "log_loss", "--scale", "real"), "scale must be one of"),
            (("--scale", "logits"), "Invalid value for '--scale': 'logits' is not one of"),
            (("--corrects", "both"), "--corrects needs --negative-rate"),
            (("--negative-rate", "0.1"), "--negative-rate needs --corrects"),
            (("--negative-rate", "7", "--corrects", "rows"), "in (0, 1], not 7"),
            (
                ("--negative-rate", "0.1", "--corrects", "both", "--scale", "real"),
                "expected probabilities or logits, found --scale real; use --corrects rows",
            ),
            (("--by", "variant,variant"), "--by: expected each column once, such as country,device"),
            (("--by", "variant", "--by", "variant"), "named twice"),
            (("--by", "pctr_b"), "expected keys of one kind (integers, strings, bytes"),
            (("--score", "pctr_b"), "expected each column of scores once"),
            (("--threads", "0"), "--threads"),
            (("--lable", "x"), "--lable"),
            (("--save", "/nowhere/x.smet"), "there is no folder /nowhere"),
            (("--task", "x.toml"), "--task cannot be combined with --label, --score; "),
            (("--delimiter", '"'), "--delimiter '\"': expected one or more characters"),
            (("--delimiter", ";"), "expected CSV or TSV because of --delimiter, found parquet"),
            (("--by", "variant", "--weight", "nix"), "no column 'nix'"),
            (("--by", "weight"), "slices by 'weight' cannot be listed"),
            (("--k", "5"), "--k 5: none of the metrics auc, average_precision, log_loss, "),
            (("--task-type", "regression", "--scale", "logit"), "--scale logit: none of the metrics "),
            (
                ("--sort", "auc", "--min-rows", "9"),
                "--sort, --min-rows: expected --by as well; name the columns to slice by",
            ),
            (
                ("--limit", "3", "--keep", "hash"),
                "--limit, --keep: expected --by as well; name the columns to slice by",
            ),
            (("--users", "9"), "--users: expected --unit as well; name the column of units"),
            (("--better", "ctr=high", "--confidence", "0.9"), "--better, --confidence: expected --unit as well"),
            (("--score", "pctr_x", "--metrics", "ctr"), "there is no column 'pctr_x'; did you mean 'pctr_"),
            (
                ("--score", "pctr_a", "--unit", "user_id", "--better", "auc=low"),
                "--better auc: it is already known which values of this metric are better (high",
            ),
        ],
    )
    def test_one_line_and_code_2(self, fails, log, arguments, part):
        assert part in fails("eval", log, *BASE, *arguments)

    def test_no_label(self, fails, log):
        said = fails("eval", log)
        assert "expected a column of labels; name it with --label" in said
        assert "; the columns are: " in said

    def test_no_log(self, fails):
        assert "no such file or folder" in fails("eval", "nowhere.parquet", *BASE)
        assert "LOG" in fails("eval", *BASE).upper()

    def test_an_unknown_command(self, fails):
        assert "frob" in fails("frob")

    def test_a_broken_file(self, fails, tmp_path):
        path = tmp_path / "log.parquet"
        path.write_bytes(b"PAR1 not really")
        assert fails("eval", path, *BASE).startswith(f"{path}: ")

    def test_a_damaged_page(self, fails, tmp_path):
        rng = np.random.default_rng(0)
        path = tmp_path / "log.parquet"
        columns = {"click": rng.integers(0, 2, 50_000).astype(np.int8), "pctr_b": rng.random(50_000)}
        pq.write_table(pa.table(columns), path, write_page_checksum=True)
        data = bytearray(path.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
        path.write_bytes(bytes(data))
        saved = tmp_path / "out.smet"
        ran = fails("eval", path, "--label", "click", "--score", "pctr_b", "--save", saved)
        assert ran.startswith(str(path))
        assert not saved.exists()

    def test_a_folder_to_save_to(self, fails, log, tmp_path):
        assert "found a folder" in fails("eval", log, *BASE, "--save", tmp_path)

    def test_nothing_is_left_after_a_failure(self, fails, write, tmp_path):
        path = write(click=[0, 3], pctr_b=[0.5, 0.5])
        before = sorted(tmp_path.iterdir())
        fails("eval", path, *BASE, "--save", tmp_path / "x.smet")
        assert sorted(tmp_path.iterdir()) == before

    def test_what_was_saved_before_stays(self, run, fails, log, write, tmp_path):
        saved: Path = tmp_path / "x.smet"
        run("eval", log, *BASE, "--save", saved)
        before = saved.read_bytes()
        fails("eval", write(click=[0, 3], pctr_b=[0.5, 0.5]), *BASE, "--save", saved)
        assert saved.read_bytes() == before
