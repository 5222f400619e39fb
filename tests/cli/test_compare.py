"""Which model, arm or day is better: what the command line says is what the library says of the same rows."""

from __future__ import annotations

import csv
import io
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pages import tree

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy

METRICS = "auc,log_loss,calibration,ctr"
MODELS = ("--label", "click", "--score", "old", "--score", "new", "--metrics", METRICS)
ONE = ("--label", "click", "--score", "old", "--metrics", METRICS)
UNIT = ("--unit", "user_id")
USERS = 1500


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows of users who differ much from one another, and of whom some come often; arm C lost its calibration."""
    rng = np.random.default_rng(3)
    user = np.repeat(np.arange(USERS), np.minimum(200, 3 * rng.random(USERS) ** -0.7).astype(int))
    n = len(user)
    rate = np.clip(rng.beta(0.6, 3, USERS), 0.002, 0.9)[user]
    arm = np.array(["A", "B", "C"])[user % 3]
    logit = np.log(rate / (1 - rate))
    scores = {
        name: 1 / (1 + np.exp(-(logit + noise * rng.normal(size=n)))) for name, noise in (("old", 1.5), ("new", 0.5))
    }
    scores["old"] = np.where(arm == "C", scores["old"] ** 0.3, scores["old"])
    return pa.table(
        {
            "click": (rng.random(n) < rate).astype(np.int8),
            **scores,
            "user_id": [f"user {u}" for u in user],
            "arm": arm,
            "country": np.where(rng.random(n) < 0.3, "de", "fr"),
            "day": rng.integers(0, 3, n),
            "ts": np.datetime64("2024-05-01", "s") + rng.integers(0, 3 * 86400, n).astype("m8[s]"),
        }
    )


@pytest.fixture(scope="module")
def users(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "log.parquet"
    pq.write_table(rows, path, row_group_size=500)
    return path


def task(score: str) -> sm.Task:
    return sm.Task([sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.CTR()], y_true="click", y_score=score)


def both() -> sm.Sharded:
    return sm.Sharded({"old": task("old"), "new": task("new")}, unit="user_id")


def alike(number: float | None, expected: float) -> bool:
    """Whether JSON has a number of the library, to the bit."""
    return number is None if math.isnan(expected) else number == expected


def check(record: dict, expected: sm.inference.comparison.Comparison) -> None:
    for name, value in {
        "value": expected.a,
        "control_value": expected.b,
        "difference": expected.difference.estimate,
        "difference_low": expected.difference.low,
        "difference_high": expected.difference.high,
        "relative": expected.relative.estimate,
        "relative_low": expected.relative.low,
        "relative_high": expected.relative.high,
        "p_value": expected.p_value,
        "adjusted": expected.adjusted,
    }.items():
        assert alike(record[name], value), name
    assert record["reason"] == expected.reason


class TestModels:
    @pytest.mark.slow
    def test_intervals_are_those_of_the_units(self, run, users, rows):
        found = run("eval", users, *MODELS, *UNIT, "--format", "json").records
        expected = both().update(rows).table().to_dict()
        for column in ("interval_low", "interval_high"):
            assert [r[column] for r in found] == expected[column]
        ctr = next(r for r in found if r["metric"] == "new/ctr")
        binomial = 2 * 1.96 * math.sqrt(ctr["value"] * (1 - ctr["value"]) / ctr["rows"])
        assert ctr["interval_high"] - ctr["interval_low"] > 2 * binomial  # which the rows of a user make too narrow

    def test_without_units_there_are_none(self, run, users):
        ran = run("eval", users, *MODELS, "--format", "json")
        assert {r["interval_low"] for r in ran.records} == {None}
        assert ran.verdicts == ran.comparisons == []
        last = run("eval", users, *MODELS).out.splitlines()[-1]
        assert last.startswith("no intervals: name the column of units with --unit")

    def test_rows_as_units(self, run, users, rows):
        found = run("eval", users, *MODELS, "--unit", "row", "--format", "json")
        alone = sm.MetricCollection({"old": task("old"), "new": task("new")}).update(rows).table().to_dict()
        assert [r["interval_low"] for r in found.records] == alone["interval_low"]
        assert found.comparisons == []
        out = run("eval", users, *MODELS, "--unit", "row").out
        assert "as if all rows (queries, groups) were independent" in out
        assert "no differences: models on the same rows need a column of units" in out

    @pytest.mark.slow
    def test_differences_are_those_of_compare(self, run, users, rows):
        ran = run("eval", users, *MODELS, *UNIT, "--by", "country", "--format", "json")
        held = sm.Sliced(both(), by="country").update(rows)
        whole = sm.compare(held.total.task("new"), held.total.task("old"))
        sliced = sm.compare(held.task("new"), held.task("old"), adjust="bh")
        assert len(ran.comparisons) == len(whole) + len(sliced)
        for record in ran.comparisons:
            key = tuple(record["slice"].values())
            check(record, sliced[(*key, record["metric"])] if key else whole[record["metric"]])
            assert (record["treatment"], record["control"]) == ("new", "old")
        assert {r["better"] for r in ran.comparisons if r["metric"] == "auc" and not r["by"]} == {"new"}

    @pytest.mark.slow
    def test_the_verdict_comes_first(self, run, users):
        lines = run("eval", users, *MODELS, *UNIT).out.splitlines()
        assert lines[0].startswith("new is better than old: auc +0.")
        assert "(95 % +0." in lines[0]
        assert lines[1] == ""
        assert lines[2].endswith(" rows")
        assert lines[4] == "new against old"
        turned = run("eval", users, *MODELS, *UNIT, "--control", "new", "--primary", "calibration").out
        assert turned.startswith("old is worse than new: calibration ")
        assert run("eval", users, *MODELS, *UNIT, "--confidence", 0.8).out.splitlines()[0].count("(80 % +") == 1

    @pytest.mark.slow
    def test_tables_in_a_pipe_fit(self, run, users):
        more = ("--by", "country", "--by", "day,country", "--window", "1d", "--time", "ts")
        out = run("eval", users, *MODELS, *UNIT, *more, "--guardrail", "calibration=0.5").out
        assert max(map(len, out.splitlines()[2:])) <= 120
        assert "new against old, by country" in out

    def test_tasks_of_other_labels_are_not_compared(self, run, users, rows, tmp_path):
        path = tmp_path / "tasks.toml"
        tasks = {"a": "click", "b": "click", "c": "day"}
        text = [f'[tasks.{n}]\nlabel = "{y}"\nscore = "new"\nmetrics = ["auc"]\n' for n, y in tasks.items()]
        path.write_text("\n".join(text).replace('label = "day"', 'label = "day"\nwhere = "day<2"'))
        found = run("eval", users, "--task", path, *UNIT, "--format", "json").comparisons
        assert {(r["treatment"], r["control"]) for r in found} == {("b", "a")}


class TestArms:
    ARMS = (
        "--arm",
        "arm",
        "--control",
        "A",
        "--primary",
        "ctr",
        "--better",
        "ctr=high",
        "--guardrail",
        "calibration=0.1",
    )

    def arms(self, rows):
        metrics = [sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.CTR()]
        inner = sm.Sharded(sm.Task(metrics, y_true="click", y_score="old"), unit="user_id")
        return sm.Sliced(inner, by="arm").update(rows)

    @pytest.mark.slow
    def test_verdicts_are_those_of_a_scorecard(self, run, users, rows):
        ran = run("eval", users, *ONE, *UNIT, *self.ARMS, "--format", "json")
        card = sm.scorecard(
            self.arms(rows),
            control="A",
            primary="ctr",
            better={"ctr": "high"},
            guardrails={"calibration": 0.1},
            secondary=["auc", "log_loss"],
        )
        assert [v["sentence"] for v in ran.verdicts] == [v.sentence for v in card.verdicts.values()]
        assert [v["decision"] for v in ran.verdicts] == [v.decision for v in card.verdicts.values()]
        words = {row["metric"]: row["word"] for row in card.table() if row["treatment"] == "C"}
        assert {n: m["word"] for n, m in ran.verdicts[1]["metrics"].items()} == words
        assert words["calibration"] == "breached"
        assert ran.code == card.exit_code == 3

    @pytest.mark.slow
    def test_the_exit_code_is_of_guardrails_alone(self, run, users):
        assert run("eval", users, *ONE, *UNIT, *self.ARMS[:-2]).code == 0
        out = run("eval", users, *ONE, *UNIT, *self.ARMS)
        assert out.code == 3
        assert any(
            line.startswith("ctr of C is ") and "the guardrail calibration is breached" in line
            for line in out.out.splitlines()[:2]
        )
        final = run("eval", users, *ONE, *UNIT, *self.ARMS, "--final")
        assert final.code == 3
        assert any(
            line.startswith("Do not ship C: the guardrail calibration is breached")
            for line in final.out.splitlines()[:2]
        )
        kept = ("--where", "arm!=C")
        assert run("eval", users, *ONE, *UNIT, *self.ARMS[:-1], "calibration=0.99", *kept).code == 0

    @pytest.mark.slow
    def test_the_table_says_what_guardrails_allow(self, run, users):
        asked = ("eval", users, *ONE, *UNIT, *self.ARMS, "--final")
        ran = run(*asked, "--guardrail", "log_loss=0.05")
        lines = {line.split()[1]: line for line in ran.out.splitlines() if " guardrail " in line}
        control = float(lines["log_loss"].split()[3])
        allowed = re.search(r" ≤ \+5 % \(([\d.]+)\) ", lines["log_loss"])
        assert float(allowed[1]) == pytest.approx(1.05 * control, rel=1e-3)
        assert re.search(r" 0\.\d+ to 1\.\d+ ", lines["calibration"])
        # With two guardrails and two treatments, the verdict on a guardrail has another interval than the table.
        assert "(98.8 % " in ran.out.splitlines()[1]
        remark = (
            "the verdict gives the 98.8 % interval of a breached guardrail, because any one of 2 guardrails can stop"
        )
        assert remark in ran.out
        assert "of a breached guardrail" not in run(*asked).out
        absolute = run(*asked, "--guardrail", "log_loss=0.05", "--absolute").out
        assert any(" ≤ +0.05 " in line for line in absolute.splitlines())
        assert " limit " not in run("eval", users, *ONE, *UNIT, *self.ARMS[:-2], "--final").out

    @pytest.mark.slow
    def test_each_of_several_treatments_is_named(self, run, users):
        unclear = run("eval", users, *ONE, *UNIT, "--arm", "arm", "--control", "A", "--primary", "log_loss",
                      "--final")  # fmt: skip
        assert [line[:16] for line in unclear.out.splitlines()[:2]] == ["Inconclusive for", "Do not ship C: l"]

    @pytest.mark.slow
    def test_the_control_of_a_flag_is_spelled_as_programs_print_it(self, run, rows, tmp_path):
        pq.write_table(rows.append_column("treated", pc.equal(rows["arm"], "B")), tmp_path / "log.parquet")
        for control in ("true", "True", "TRUE"):
            given = (*UNIT, "--arm", "treated", "--control", control, "--primary", "log_loss", "--format", "json")
            found = run("eval", tmp_path / "log.parquet", *ONE, *given)
            assert [v["treatment"] for v in found.verdicts] == ["False"]

    @pytest.mark.slow
    def test_slices_within_arms(self, run, users, rows):
        ran = run("eval", users, *ONE, *UNIT, *self.ARMS, "--by", "country", "--format", "json")
        inner = sm.Sharded(task("old"), unit="user_id")
        held = sm.Sliced(sm.Sliced(inner, by="country"), by="arm").update(rows)
        expected = sm.compare(held["B"], held["A"], adjust="bh", confidence=0.975)  # two treatments share 5 %
        roles = {"primary": "ctr", "guardrails": {"calibration": 0.1}, "secondary": ["auc", "log_loss"]}
        card = sm.scorecard(held, control="A", better={"ctr": "high"}, **roles)
        rows_of_card = {(r["country"], r["metric"]): r for r in card.slices("bh") if r["treatment"] == "B"}
        found = [r for r in ran.comparisons if r["by"] and r["treatment"] == "B"]
        assert len(found) == len(expected) == 8
        for record in found:
            country, metric = record["slice"]["country"], record["metric"]
            one = rows_of_card[country, metric]
            check(record, expected[country, metric])
            assert record["word"] == one["word"]

    @pytest.mark.slow
    def test_rows_without_an_arm_are_in_none(self, run, fails, rows, tmp_path):
        arm = pa.array([None if a == "C" else a for a in rows["arm"].to_pylist()])
        pq.write_table(rows.set_column(rows.schema.get_field_index("arm"), "arm", arm), tmp_path / "log.parquet")
        found = run("eval", tmp_path / "log.parquet", *ONE, *UNIT, *self.ARMS, "--format", "json")
        assert [v["treatment"] for v in found.verdicts] == ["B"]
        one = rows.set_column(rows.schema.get_field_index("arm"), "arm", pa.array(["A"] * len(rows)))
        pq.write_table(one, tmp_path / "one.parquet")
        assert "expected at least two arms, found only " in fails(
            "eval", tmp_path / "one.parquet", *ONE, *UNIT, *self.ARMS
        )

    @pytest.mark.slow
    def test_looking_all_day(self, run, fails, users):
        looks = ("--sequential", "--users", USERS, "--planned", 10 * USERS)
        ran = run("eval", users, *ONE, *UNIT, *self.ARMS, *looks)
        assert "97.5 % always" in ran.out.splitlines()[0]
        rows_as_units = ("eval", users, *ONE, "--unit", "row", *self.ARMS)
        assert "--sequential needs --users" in fails(*rows_as_units, "--sequential")
        assert "--planned needs --users" in fails(*rows_as_units, "--planned", 100)
        assert "--planned and --final contradict each other" in fails(
            *rows_as_units, "--planned", 100, "--users", 100, "--final"
        )

    @pytest.mark.slow
    def test_the_users_so_far_are_those_that_were_counted(self, run, users, rows):
        """A third of the users is in each arm, so two arms have 1,000."""
        arms = ("eval", users, *ONE, *UNIT, *self.ARMS)
        early = run(*arms, "--planned", 1001, "--format", "json")
        assert early.code == 0
        assert [v["decision"] for v in early.verdicts] == ["keep running", "keep running"]
        assert early.verdicts[0]["sentence"].startswith("Keep running B: 1,000 of 1,001 users so far")
        assert early.verdicts[0]["more_users"] == 1
        assert {m["word"] for v in early.verdicts for m in v["metrics"].values()} == {"too early"}
        assert {(r["word"], r["better"]) for r in early.comparisons} == {("too early", None)}
        reached = run(*arms, "--planned", 1000, "--format", "json")
        assert reached.code == 3
        assert "keep running" not in [v["decision"] for v in reached.verdicts]
        # The number of the option goes before the counted one.
        assert run(*arms, "--planned", 1001, "--users", 1001, "--format", "json").verdicts == reached.verdicts
        card = sm.scorecard(
            self.arms(rows), control="A", primary="ctr", better={"ctr": "high"}, guardrails={"calibration": 0.1},
            sequential=True, users={"A": 500, "B": 500, "C": 500},
        )  # fmt: skip
        always = run(*arms, "--sequential", "--format", "json")
        assert [v["sentence"] for v in always.verdicts] == [v.sentence for v in card.verdicts.values()]
        low = {(r["treatment"], r["metric"]): r["relative_low"] for r in always.comparisons}
        assert all(low[r["treatment"], r["metric"]] == r["low"] for r in card.table())

    def test_independent_rows_of_arms(self, run, users, rows):
        ran = run("eval", users, *ONE, "--unit", "row", *self.ARMS, "--format", "json")
        arms = sm.Sliced(sm.MetricCollection(task("old")), by="arm").update(rows)
        expected = sm.compare(arms["B"], arms["A"], independent=True, confidence=0.975)
        for record in (r for r in ran.comparisons if r["treatment"] == "B"):
            check(record, expected[record["metric"]])


class TestWindows:
    MORE = ("--window", "1d", "--time", "ts", "--by", "country")

    @pytest.mark.slow
    def test_values_by_window_and_slice(self, run, users, rows):
        found = run("eval", users, *ONE, *UNIT, *self.MORE, "--format", "json").records
        held = sm.Windowed(sm.Sharded(task("old"), unit="user_id"), width="1d", time="ts")
        expected = held.update(rows).table().to_dict()
        some = [r for r in found if r["by"] == ["ts"]]
        assert [r["value"] for r in some] == expected["value"]
        assert [r["interval_high"] for r in some] == expected["interval_high"]
        assert some[0]["slice"] == {"ts": "2024-05-01T00:00:00+00:00"}
        cross = sm.Sliced(empty_copy(held), by="country").update(rows).table().to_dict()
        some = [r for r in found if r["by"] == ["country", "ts"]]
        assert [r["value"] for r in some] == cross["value"]
        whole = sm.Sliced(sm.Sharded(task("old"), unit="user_id"), by="country").update(rows).table().to_dict()
        assert [r["value"] for r in found if r["by"] == ["country"]] == whole["value"]

    @pytest.mark.slow
    def test_one_pass_counts_what_the_library_counts_however_it_is_cut(self, run, users, rows, tmp_path):
        arms = ("--arm", "arm", "--control", "A")
        digests = set()
        for i, more in enumerate((("--threads", 1), ("--threads", 3), ("--checkpoint", tmp_path / "point"))):
            path = tmp_path / f"{i}.smet"
            assert run("eval", users, *ONE, *UNIT, *self.MORE, *arms, *more, "--save", path).code == 0
            digests.add(sm.load(path).digest())
        assert len(digests) == 1
        saved = sm.load(path)
        assert list(saved) == ["overall", "by 1d of ts", "by arm", "by arm,country", "users"]
        inner = sm.Windowed(sm.Sharded(task("old"), unit="user_id"), width="1d", time="ts")
        assert saved["by arm,country"] == sm.Sliced(sm.Sliced(inner, by="country"), by="arm").update(rows)
        assert saved["overall"] == sm.Sharded(task("old"), unit="user_id").update(rows)
        assert saved["by arm,country"].total.across("ts") == sm.Sliced(
            sm.Sharded(task("old"), unit="user_id"), by="country"
        ).update(rows)

    def test_mistakes(self, fails, users):
        assert fails("eval", users, *ONE, "--window", "1h").startswith("--window needs --time")
        assert "expected a duration" in fails("eval", users, *ONE, "--window", "1x", "--time", "ts")
        assert "timestamp" in fails("eval", users, *ONE, "--window", "1h", "--time", "country")
        assert "cannot define slices or arms as well" in fails(
            "eval", users, *ONE, "--window", "1h", "--time", "ts", "--by", "ts"
        )


class TestSaved:
    @pytest.fixture
    def days(self, run, users, tmp_path):
        """The states of the first day and of the others."""
        for name, where in (("first", "day=0"), ("rest", "day>0")):
            how = (*MODELS, *UNIT, "--by", "day,country", "--where", where)
            assert run("eval", users, *how, "--save", tmp_path / f"{name}.smet").code == 0
        return tmp_path / "first.smet", tmp_path / "rest.smet"

    @pytest.mark.slow
    def test_compare_says_what_the_library_says(self, run, days):
        first, rest = map(sm.load, days)
        expected = sm.compare(rest["overall"], first["overall"])
        found = run("compare", *days, "--format", "json").comparisons
        assert len(found) == len(expected) == 8
        for record in found:
            check(record, expected[record["metric"]])
            assert (record["treatment"], record["control"]) == ("rest", "first")
        lines = run("compare", *days, "--primary", "new/auc").out.splitlines()
        assert " between rest and first: new/auc " in lines[0] or lines[0].startswith("rest is ")
        table = list(csv.DictReader(io.StringIO(run("compare", *days, "--format", "csv").out)))
        assert [float(r["difference"]) for r in table] == [r["difference"] for r in found]

    @pytest.mark.slow
    def test_by_rolls_up_what_was_saved(self, run, fails, days):
        sides = [sm.load(path)["by day,country"].rollup("country") for path in days]
        expected = sm.compare(sides[1], sides[0], adjust="bh")
        found = [r for r in run("compare", *days, "--by", "country", "--format", "json").comparisons if r["by"]]
        assert len(found) == len(expected) == 16
        for record in found:
            check(record, expected[record["slice"]["country"], record["metric"]])
        assert "rest against first, by country" in run("compare", *days, "--by", "country").out
        assert "expected saved slices that include these columns" in fails("compare", *days, "--by", "arm")

    @pytest.mark.slow
    def test_exit_code(self, run, users, tmp_path):
        for arm in "AC":
            run("eval", users, *ONE, *UNIT, "--where", f"arm={arm}", "--save", tmp_path / f"{arm}.smet")
        files = tmp_path / "A.smet", tmp_path / "C.smet"
        broken = run("compare", *files, "--guardrail", "calibration=0.02")
        assert (broken.code, broken.err) == (3, "")
        assert broken.out.startswith("auc of C is ")
        assert "and the guardrail calibration is breached" in broken.out.splitlines()[0]
        final = run("compare", *files, "--guardrail", "calibration=0.02", "--final", "--format", "json")
        assert (final.code, final.verdicts[0]["decision"]) == (3, "do not")
        assert final.verdicts[0]["sentence"].startswith("Do not ship C: the guardrail calibration is breached")
        # Without guardrails, --final and --sequential give a decision, too.
        assert run("compare", *files, "--final", "--format", "json").verdicts[0]["decision"] == "inconclusive"
        always = run("compare", *files, "--sequential", "--users", 1000, "--format", "json")
        assert always.verdicts[0]["decision"] == "keep running"
        assert run("compare", *files, "--sequential").code == 2
        assert run("compare", *files, "--planned", 1000).code == 2
        assert run("compare", *files).code == 0
        assert run("compare", *files, "--guardrail", "calibration=0.99", "--metrics", "auc,calibration").code == 0
        assert run("compare", *files, "--guardrail", "calibratoin=0.99").code == 2

    @pytest.mark.slow
    def test_a_reader_that_goes_takes_nothing_with_it(self, run, users, tmp_path):
        """`| head` has read enough: a breached guardrail is told by the exit code, and what comes after is written."""
        for arm in "AC":
            run("eval", users, *ONE, *UNIT, "--where", f"arm={arm}", "--save", tmp_path / f"{arm}.smet")
        for command, code in (
            ("compare A.smet C.smet --guardrail calibration=0.02", 3),
            ("show A.smet --report page.html", 0),
        ):
            line = f"{sys.executable} -m streammetrics {command} 2>&1 | true"
            ran = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, capture_output=True, text=True)
            assert (ran.returncode, ran.stderr) == (code, "")
        assert (tmp_path / "page.html").stat().st_size > 10_000

    @pytest.mark.slow
    def test_states_that_cannot_be_compared(self, run, fails, users, tmp_path):
        paths = {}
        for name, how in {"a": UNIT, "b": (*UNIT, "--shards", 16), "c": ("--unit", "arm"), "d": ()}.items():
            paths[name] = tmp_path / f"{name}.smet"
            assert run("eval", users, *ONE, *how, "--save", paths[name]).code == 0
        line = fails("compare", paths["a"], paths["b"])
        assert line.startswith(
            "a was counted with --unit user_id --shards 64 and b was counted with --unit user_id --shards 16"
        )
        assert (
            "count both with --unit user_id --shards 64, or add --independent if no unit (such as a user) is in "
            "both logs" in line
        )
        assert "c was counted with --unit arm --shards 64" in fails("compare", paths["a"], paths["c"])
        assert "d was counted without --unit" in fails("compare", paths["a"], paths["d"])
        assert "d was counted without --unit" in fails("compare", paths["d"], paths["a"])
        one, two = sm.load(paths["a"]), sm.load(paths["b"])
        expected = sm.compare(two, one, independent=True)
        for record in run("compare", paths["a"], paths["b"], "--independent", "--format", "json").comparisons:
            check(record, expected[record["metric"]])
        assert "expected two or more files, found 1" in fails("compare", paths["a"])
        assert "named twice" in fails("compare", paths["a"], paths["a"])

    @pytest.mark.slow
    def test_show_has_intervals_where_units_were_named(self, run, users, days, tmp_path):
        shown = run("show", days[0], "--format", "json").records
        expected = sm.load(days[0])["overall"].table().to_dict()
        assert [r["interval_low"] for r in shown if not r["by"]] == expected["interval_low"]
        note = "confidence intervals, for rows that are correlated within each user_id"
        assert f"95 %: {note}" in run("show", days[0], "--by", "country").out
        assert f"90 %: {note}" in run("show", days[0], "--confidence", 0.9).out
        run("eval", users, *ONE, "--save", tmp_path / "plain")
        assert {r["interval_low"] for r in run("show", tmp_path / "plain", "--format", "json").records} == {None}

    @pytest.mark.slow
    def test_days_merge(self, run, users, rows, tmp_path):
        parts = [tmp_path / f"{day}.smet" for day in range(3)]
        for day, part in enumerate(parts):
            pq.write_table(rows.filter(pc.equal(rows["day"], day)), tmp_path / "day.parquet")
            assert run("eval", tmp_path / "day.parquet", *MODELS, *UNIT, "--save", part).code == 0
        assert run("merge", *parts[::-1], "-o", tmp_path / "all").code == 0
        assert sm.load(tmp_path / "all") == both().update(rows)

    @pytest.mark.slow
    def test_power(self, run, fails, users, tmp_path):
        assert run("eval", users, *ONE, *UNIT, "--save", tmp_path / "x").code == 0
        plan = sm.power(sm.load(tmp_path / "x"), "ctr", users=USERS, relative=0.05)
        out = run("power", tmp_path / "x", "--users", USERS, "--relative", 0.05).out
        line = next(line for line in out.splitlines() if line.startswith("ctr "))
        assert line.split() == ["ctr", "+5", "%", f"{math.ceil(plan.users):,}"]
        assert "did you mean 'auc'?" in fails("power", tmp_path / "x", "--users", USERS, "--metric", "acu")
        planned = ("--metric", "ctr", "--planned", 9 * USERS, "--sequential")
        assert "on average" in run("power", tmp_path / "x", "--users", USERS, *planned).out
        many = ("power", tmp_path / "x", "--users", USERS, "--table", "--guardrail", "ctr=0.05", "--per-day", 1000)
        lines = run(*many, "--better", "ctr=low").out.splitlines()
        heads = next(line for line in lines if line.startswith("difference")).split()
        row = next(line for line in lines if line.startswith("+5 %"))
        assert "ctr" in heads
        assert f"{math.ceil(plan.users):,} {math.ceil(plan.users / 1000):,} day" in row
        assert any(line.split()[:4] == ["ctr", "5", "%", f"{math.ceil(plan.users):,}"] for line in lines)
        assert "add --better ctr=high or --better ctr=low" in fails(*many)
        assert "need --table" in fails("power", tmp_path / "x", "--users", USERS, "--per-day", 10)
        assert "leave out one of them" in fails(*many, "--planned", 10)


class TestTaskFiles:
    FILE = """
by = "country"
unit = "user_id"
arm = "arm"
control = "A"
primary = "ctr"
better = { ctr = "high" }
guardrails = { calibration = 0.1 }
window = "1d"
time = "ts"

[tasks.only]
label = "click"
score = "old"
metrics = ["auc", "calibration", "ctr"]
"""

    @pytest.mark.slow
    def test_a_file_says_what_options_say(self, run, users, tmp_path):
        (tmp_path / "tasks.toml").write_text(self.FILE)
        named = ("--label", "click", "--score", "old", "--metrics", "auc,calibration,ctr", "--by", "country", *UNIT)
        options = run("eval", users, *named, *TestArms.ARMS, "--window", "1d", "--time", "ts", "--format", "json")
        told = run("eval", users, "--task", tmp_path / "tasks.toml", "--format", "json")
        assert [v["decision"] for v in told.verdicts] == [v["decision"] for v in options.verdicts]
        plain = [r | {"metric": r["metric"].removeprefix("only/")} for r in told.comparisons]
        assert plain == options.comparisons
        assert [r["value"] for r in told.records] == [r["value"] for r in options.records]
        assert told.code == options.code == 3
        kept = run("eval", users, "--task", tmp_path / "tasks.toml", "--guardrail", "calibration=0.99")
        assert kept.code == 0  # options go before the file

    @pytest.mark.parametrize(
        ("was", "made", "said"),
        [
            ('unit = "user_id"', "unit = 3", "unit: expected a string, found 3"),
            ("guardrails = { calibration = 0.1 }", "guardrails = 1", "guardrails: expected a table such as"),
            ('arm = "arm"', 'arms = "arm"', "did you mean 'arm'?"),
        ],
    )
    def test_mistakes(self, fails, users, tmp_path, was, made, said):
        (tmp_path / "tasks.toml").write_text(self.FILE.replace(was, made))
        assert said in fails("eval", users, "--task", tmp_path / "tasks.toml")


class TestTooLittle:
    @pytest.mark.slow
    def test_few_users_are_a_reason_and_no_error(self, run, rows, tmp_path):
        few = rows.slice(0, 60)
        pq.write_table(few, tmp_path / "few.parquet")
        ran = run("eval", tmp_path / "few.parquet", *MODELS, *UNIT)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("No verdict on new and old: auc has no interval: ")
        assert "no interval for " in ran.out
        found = run("eval", tmp_path / "few.parquet", *MODELS, *UNIT, "--format", "json")
        assert all(r["reason"] for r in found.comparisons if r["metric"] == "auc")
        assert all(r["interval_reason"] for r in found.records if r["metric"] == "new/auc")

    def test_metrics_without_an_interval_say_what_to_use(self, run, users):
        more = ("--metrics", "auc,expected_calibration_error")
        ran = run("eval", users, *MODELS[:-2], *more, *UNIT)
        assert ran.code == 0
        assert "no interval for expected_calibration_error: " in ran.out


class TestMistakes:
    @pytest.mark.slow
    def test_units(self, fails, run, rows, users, tmp_path):
        assert "no column 'usr'; did you mean 'user_id'" in fails("eval", users, *MODELS, "--unit", "usr")
        units = pa.array([None, *rows["user_id"].to_pylist()[1:]])
        nulls = tmp_path / "nulls.parquet"
        pq.write_table(rows.set_column(rows.schema.get_field_index("user_id"), "user_id", units), nulls)
        line = fails("eval", nulls, *MODELS, *UNIT)
        assert "--missing-unit skip leaves out rows without a key" in line
        assert f"row 0 of {nulls}" in line
        kept = run("eval", nulls, *MODELS, *UNIT, "--missing-unit", "skip", "--format", "json")
        assert kept.records[0]["rows"] == len(rows) - 1
        assert sum(kept.records[0]["dropped"].values()) == 1
        assert "--unit" in fails("eval", users, *MODELS, "--shards", 16)

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            (("--control", "neww"), "there is no model 'neww'; did you mean 'new'?"),
            (("--arm", "arm"), "--arm arm needs --control"),
            (
                ("--arm", "arm", "--control", "Z"),
                "--control Z: there is no such arm in column 'arm'; choose from A, B, C",
            ),
            (
                ("--arm", "arm", "--control", "a"),
                "--control a: there is no such arm in column 'arm'; choose from A, B, C",
            ),
            (("--arm", "arm", "--control", "A", "--by", "arm"), "--by arm: --arm already slices by this column"),
            (("--guardrail", "calibratoin=0.1"), "there is no metric 'calibratoin'; did you mean 'calibration'?"),
            (("--guardrail", "calibration"), "--guardrail calibration: expected METRIC=MARGIN"),
            (("--guardrail", "calibration=-1"), "--guardrail calibration=-1: expected a margin of 0 or more"),
            (
                ("--guardrail", "ctr=0.1"),
                "--guardrail ctr: it is unknown whether high or low values of this metric are better",
            ),
            (("--better", "ctr=up"), "--better ctr=up: expected METRIC=high or METRIC=low"),
            (
                ("--primary", "auc", "--guardrail", "auc=0.1"),
                "--guardrail auc: the primary metric cannot be a guardrail as well",
            ),
        ],
    )
    def test_what_is_asked(self, fails, users, more, said):
        assert fails("eval", users, *MODELS, *UNIT, *more).startswith(said)

    @pytest.mark.parametrize(
        "more", [("--control", "new"), ("--guardrail", "auc=0.1"), ("--arm", "arm", "--control", "A")]
    )
    def test_no_differences_without_units(self, fails, users, more):
        assert "name the column of units with --unit" in fails("eval", users, *MODELS, *more)

    def test_one_model(self, fails, users):
        assert "expected two models or arms to compare" in fails("eval", users, *ONE, *UNIT, "--control", "old")
        assert "expected two models or arms to compare" in fails("eval", users, *ONE, *UNIT, "--guardrail", "auc=0.1")

    def test_help_has_the_recipe_of_a_gate(self, run):
        out = run("compare", "--help").out
        assert "--guardrail calibration=0.02 || exit 1" in " ".join(out.split())
        assert "3 if one is" in " ".join(out.split())


class TestUserSplit:
    @pytest.fixture
    def arms(self, write):
        """Write a log of three rows a user; each user is in one arm, except those of `both`."""

        def make(name: str, *, both: int = 0, **counts: int) -> Path:
            arm = np.repeat(list(counts), list(counts.values()))
            user = np.concatenate([np.arange(len(arm)), np.arange(both)])
            arm = np.repeat(np.concatenate([arm, np.repeat("new", both)]), 3)
            click = np.random.default_rng(1).random(len(arm)) < np.where(arm == "new", 0.5, 0.2)
            return write(name, click=click.astype(np.int8), old=click * 0.5, user_id=np.repeat(user, 3), arm=arm)

        return make

    GIVEN = (*ONE, *UNIT, "--arm", "arm", "--control", "old", "--primary", "ctr", "--better", "ctr=high")

    def test_a_mismatch_with_the_plan_withholds_ship(self, run, arms):
        log = arms("log.parquet", old=1500, new=500)
        ran = run("eval", log, *self.GIVEN, "--shares", "old=50,new=50", "--format", "json")
        known = sm.sample_ratio_mismatch({"old": 1500, "new": 500}, sequential=False)
        assert ran.verdicts[0]["decision"] == "withheld"
        assert ran.verdicts[0]["sentence"].endswith(f"({known.evidence}).")
        assert ran.code == 0
        assert [(r["arm"], r["users"], r["share"], r["planned"]) for r in ran.users] == [
            ("new", 500, 0.25, 0.5),
            ("old", 1500, 0.75, 0.5),
        ]
        assert [r["p_value"] for r in ran.users] == [known.p_value] * 2
        assert [(r["share_low"], r["share_high"]) for r in ran.users] == [known.intervals[r["arm"]] for r in ran.users]
        fits = run("eval", log, *self.GIVEN, "--shares", "old=3,new=1", "--final", "--format", "json")
        assert (fits.verdicts[0]["decision"], fits.users[0]["alarm"]) == ("ship", False)

    def test_without_a_plan_shares_are_shown_and_not_tested(self, run, arms):
        found = run("eval", arms("log.parquet", old=1500, new=500), *self.GIVEN, "--final")
        assert found.out.startswith("Ship new")
        assert "the shares are not equal; give the planned shares to test them" in found.out
        assert "new    500  25.00 %" in found.out
        assert found.out.index("users by arm") < found.out.index("new against old")
        even = run("eval", arms("log.parquet", old=500, new=510), *self.GIVEN)
        assert "the shares are not tested; give" in even.out
        few = run("eval", arms("log.parquet", old=500, new=510), *self.GIVEN, "--shares", "old=1,new=1")
        assert "too few users to tell whether they are split as planned (p = 0.777" in few.out

    @pytest.mark.slow
    def test_pages_show_the_users_of_each_arm_first(self, run, arms, tmp_path):
        log, page, saved = arms("log.parquet", old=1500, new=500), tmp_path / "page.html", tmp_path / "log.smet"
        ran = run("eval", log, *self.GIVEN, "--report", page, "--checkpoint", saved, "--format", "json")
        shown = tree(page.read_text(encoding="utf-8"))
        table = shown.all("table")[0]
        assert table.attrs["class"] == "cards arms"
        assert "arm rows users share 99 % interval" in table.text
        assert "2,000 users so far." in shown.text
        texts = {line.all("th")[0].text: line.text for line in table.all("tr")[1:]}
        for one in ran.users:
            ends = f"{100 * one['share_low']:.2f}\u202f% to {100 * one['share_high']:.2f}\u202f%"
            expected = f"{3 * one['users']:,.0f} {one['users']:,.0f} {100 * one['share']:.2f}\u202f% {ends}"
            assert texts[one["arm"]] == f"{one['arm']} {expected}"
        assert "The shares are not equal; give the planned shares" in shown.text
        again = tmp_path / "again.html"
        out = run("show", saved, "--report", again).out
        for text in (out, run("eval", log, *self.GIVEN).out):
            assert "users by arm: 2,000 users so far" in text
        assert "distinct_sample" not in out
        shown = tree(again.read_text(encoding="utf-8"))
        assert "2,000 users so far." in shown.text
        assert "old 1,500 75.00\u202f%" in shown.all("table", class_="arms")[0].text

    @pytest.mark.slow
    def test_users_are_those_of_the_log_if_they_are_not_given(self, run, arms, tmp_path):
        log, page = arms("log.parquet", old=500, new=500), tmp_path / "page.html"
        given = (*self.GIVEN, "--planned", 5000)
        for more in ((), ("--users", 1000), ("--users", 930)):
            ran = run("eval", log, *given, *more, "--report", page, "--format", "json")
            number = f"{more[1] if more else 1000:,}"
            assert f"{number} of 5,000 users so far" in ran.verdicts[0]["sentence"]
            assert f"{number} of 5,000 planned users so far" in tree(page.read_text(encoding="utf-8")).text
            assert ran.err == ""
        wrong = run("eval", log, *given, "--users", 100, "--format", "json")
        assert "1,000 of 5,000 users so far" in wrong.verdicts[0]["sentence"]
        assert wrong.err.startswith("--users 100 is not used, because the log has more users: 500 in new, 500 in")
        assert "--users 100 is not used" in run("eval", log, *given, "--users", 100).out
        assert "9,000 of 5,000 users" not in run("eval", log, *given, "--users", 9000).out
        looks = run("eval", log, *given, "--sequential", "--format", "json")
        known = run("eval", log, *given, "--sequential", "--users", 1000, "--format", "json")
        assert looks.comparisons == known.comparisons

    def test_looks_every_day_are_tested_by_e_values(self, run, arms):
        looks = ("--sequential", "--planned", 9000, "--shares", "old=50,new=50")
        found = run("eval", arms("log.parquet", old=1000, new=1010), *self.GIVEN, *looks, "--format", "json").users[0]
        assert found["p_value"] is None
        assert found["e_value"] == sm.sample_ratio_mismatch({"old": 1000, "new": 1010}).e_value

    def test_users_in_two_arms_or_in_files_merged_twice_count_once(self, run, arms, tmp_path):
        log = arms("log.parquet", old=400, new=500, both=30)
        again = tmp_path / "again.smet"
        for path in (tmp_path / "one.smet", again):
            assert run("eval", log, *self.GIVEN, "--save", path).code == 0
        assert run("merge", tmp_path / "one.smet", again, "-o", tmp_path / "both.smet").code == 0
        for ran in (
            run("eval", log, *self.GIVEN, "--threads", 1, "--format", "json"),
            run("eval", log, *self.GIVEN, "--threads", 4, "--format", "json"),
            run("show", tmp_path / "both.smet", "--format", "json"),
        ):
            assert [(r["arm"], r["users"], r["several"]) for r in ran.users] == [("new", 500, 30), ("old", 370, 30)]
        known = sm.sample_ratio_mismatch(sm.load(tmp_path / "both.smet")["users"], {"old": 1, "new": 1})
        assert known.users == {"new": 500, "old": 370}
        out = run("show", tmp_path / "both.smet", "--shares", "old=1,new=1").out
        assert "30 users are in more than one arm, and count in none" in out
        assert "users are not split as planned (p = 1e-05" in out

    def test_many_users_are_sampled(self, run, arms, monkeypatch):
        monkeypatch.setattr("streammetrics.cli.user_split.USER_LIMIT", 2000)
        log = arms("log.parquet", old=8000, new=8000)
        found = run("eval", log, *self.GIVEN, "--shares", "old=50,new=50", "--format", "json").users
        kept = {r["arm"]: r["users"] * r["sampled"] for r in found}
        assert found[0]["sampled"] < 1
        assert found[0]["p_value"] == sm.sample_ratio_mismatch(kept, sequential=False).p_value
        out = run("eval", log, *self.GIVEN, "--shares", "old=50,new=50").out
        assert f"only these {sum(kept.values()):,.0f} users are tested, and the smallest mismatch that they" in out

    def test_exposures_count_users_without_rows_in_the_log(self, run, fails, arms, tmp_path):
        log = arms("log.parquet", old=1500, new=500)
        exposures = tmp_path / "exposures.csv"
        rows = [f"{user},{'old' if user < 1500 else 'new'}" for user in range(3000)]
        exposures.write_text("\n".join(["user_id,arm", *rows, *rows[:99]]))
        saved = tmp_path / "log.smet"
        given = (*self.GIVEN, "--exposures", exposures, "--shares", "old=50,new=50", "--planned", 3000)
        out = run("eval", log, *given, "--save", saved).out
        assert out.startswith("Ship new")
        for text in (out, run("show", saved).out):
            assert "new  1,500  50.00 %" in text
            assert "these are the users in the exposures" in text
        (tmp_path / "wrong.csv").write_text("user_id\n1\n")
        assert "there is no column 'arm'" in fails("eval", log, *self.GIVEN, "--exposures", tmp_path / "wrong.csv")
        assert "would replace the file of exposures" in fails("eval", log, *given, "--save", exposures)
        assert "--shares and --exposures need --arm" in fails("eval", log, *ONE, *UNIT, "--exposures", exposures)

    def test_an_arm_that_is_not_in_the_exposures_has_no_users(self, run, arms, tmp_path):
        log = arms("log.parquet", old=1500, new=500)
        exposures = tmp_path / "exposures.csv"
        exposures.write_text("\n".join(["user_id,arm", *(f"{user},old" for user in range(1500)), "9999,other"]))
        out = run("eval", log, *self.GIVEN, "--exposures", exposures, "--planned", 3000).out
        assert out.startswith("Keep running new: 1,500 of 3,000 users so far")

    def test_an_absent_arm_is_a_mismatch_and_users_without_an_arm_are_in_none(self, run, write):
        arm = ["old"] * 300 + ["new"] * 300 + [None] * 300
        log = write(click=np.arange(900) % 2, old=np.full(900, 0.5), user_id=np.arange(900), arm=arm)
        found = run("eval", log, *self.GIVEN, "--shares", "old=1,new=1", "--format", "json").users
        assert [(r["arm"], r["users"]) for r in found] == [("new", 300), ("old", 300)]
        absent = run("eval", log, *self.GIVEN, "--shares", "old=1,new=1,c=1", "--format", "json")
        assert absent.verdicts[0]["decision"] == "withheld"
        assert {r["word"] for r in absent.comparisons} == {"withheld"}
        assert {m["word"] for m in absent.verdicts[0]["metrics"].values()} == {"withheld"}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (("--shares", "old=50"), "at least two arms"),
            (("--shares", "old=50,50"), "expected ARM=SHARE"),
            (("--shares", "old=50,old=50"), "expected ARM=SHARE"),
            (("--shares", "old=50,new=0"), "expected shares above 0"),
            (("--shares", "old=50,other=50"), "the planned share of every arm, found none of new"),
            (("--shares", "old=50,new=50", "--unit", "row"), "--shares and --exposures need --arm"),
        ],
    )
    def test_wrong_shares(self, fails, arms, given, message):
        assert message in fails("eval", arms("log.parquet", old=30, new=30), *self.GIVEN, *given)
