"""--covariate: earlier data of the same users make intervals narrower, as covariates= does; and slices are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm

USERS = 2_000
OPTIONS = ("--label", "click", "--score", "score", "--metrics", "ctr", "--unit", "user", "--arm", "arm")
ROLES = ("--control", "old", "--primary", "ctr", "--better", "ctr=high")
RNG = np.random.default_rng(8)
TASTE, ARM = RNG.normal(size=USERS), RNG.choice(["new", "old"], USERS)


def build_rows(effect: float) -> dict[str, Any]:
    user = RNG.integers(0, USERS, 20_000)
    p = 1.0 / (1.0 + np.exp(2.0 - 1.5 * TASTE[user] - effect * (ARM[user] == "new")))
    click = (RNG.random(len(user)) < p).astype(np.int8)
    return {"click": click, "score": np.full(len(user), 0.2), "user": user, "arm": ARM[user], "day": user % 2}


BEFORE, AFTER = build_rows(0.0), build_rows(0.3)


def count(rows: dict[str, Any]) -> Any:
    metrics = sm.MetricCollection(sm.Task([sm.CTR()], y_true="click", y_score="score"))
    return sm.Sliced(sm.Sharded(metrics, unit="user"), by="arm").update(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("covariates")
    for name, rows in (("before", BEFORE), ("after", AFTER)):
        pq.write_table(pa.table(rows), path / f"{name}.parquet")
        sm.save(count(rows), path / f"{name}.smet")
        for arm in ("old", "new"):
            sm.save(count(rows)[arm], path / f"{name}_{arm}.smet")
    clicks, rows_of_user = (np.bincount(BEFORE["user"], w, USERS) for w in (BEFORE["click"], None))
    past = clicks / np.maximum(rows_of_user, 1)
    pq.write_table(pa.table({"user": np.arange(USERS), "arm": ARM, "past": past}), path / "users.parquet")
    twice = np.r_[np.arange(USERS), np.arange(100)]
    pq.write_table(pa.table({"user": twice, "arm": ARM[twice], "past": past[twice]}), path / "twice.parquet")
    return path


def test_a_file_of_earlier_states(run: Any, folder: Path) -> None:
    command = ("eval", folder / "after.parquet", *OPTIONS, *ROLES)
    before, after = count(BEFORE), count(AFTER)
    expected = sm.compare(after["new"], after["old"], covariates=(before["new"], before["old"]))["ctr"]
    narrower = f"With covariates, the interval of ctr is {100 * (1 - np.sqrt(1 - expected.reduction)):.0f} % narrower."
    ran = run(
        *command, "--covariate", folder / "before.smet", "--by", "day", "--format", "json", "--report", folder / "x"
    )
    assert ran.code == 0
    assert ran.verdicts[0]["notes"] == [narrower]
    assert [ran.comparisons[0][n] for n in ("difference_low", "difference_high")] == list(expected.difference[:2])
    assert "the interval of ctr is" in (folder / "x").read_text()
    slices = run(*command, "--by", "day", "--format", "json").comparisons[1:]
    assert ran.comparisons[1:] == slices
    assert narrower in run(*command, "--covariate", folder / "before.smet").out.splitlines()
    files = [folder / f"{when}_{arm}.smet" for when in ("after", "before") for arm in ("old", "new")]
    compared = run("compare", *files[:2], "--covariate", f"{files[2]},{files[3]}", "--format", "json")
    assert compared.comparisons[0]["difference_low"] == expected.difference.low
    assert compared.verdicts[0]["notes"] == [narrower]


def test_a_column_of_the_users(run: Any, folder: Path) -> None:
    command = ("eval", folder / "after.parquet", *OPTIONS, *ROLES)
    ran = run(*command, "--covariate", "past", "--exposures", folder / "users.parquet", "--format", "json")
    users = pq.read_table(folder / "users.parquet")
    past = sm.Sliced(sm.Sharded(sm.Mean(), unit="user"), by="arm").update(
        value=users["past"], user=users["user"], arm=users["arm"]
    )
    after = count(AFTER)
    expected = sm.compare(after["new"], after["old"], covariates=(past["new"], past["old"]))["ctr"]
    assert expected.reduction > 0.2
    assert [ran.comparisons[0][n] for n in ("difference_low", "difference_high")] == list(expected.difference[:2])


def test_covariates_that_are_refused(run: Any, fails: Any, folder: Path) -> None:
    command = ("eval", folder / "after.parquet", *OPTIONS, *ROLES)
    exposures = ("--exposures", folder / "users.parquet")
    assert "found a column of the log; add --exposures FILE" in fails(*command, "--covariate", "score")
    assert "found neither" in fails(*command, "--covariate", "nothing")
    assert "no such column in" in fails(*command, "--covariate", "nothing", *exposures)
    twice = ("--covariate", "past", "--exposures", folder / "twice.parquet")
    assert "found 2,100 rows of 2,000 users; remove repeated rows" in fails(*command, *twice)
    assert "expected metrics by arm, found none" in fails(*command, "--covariate", folder / "before_old.smet")
    models = ("eval", folder / "after.parquet", *OPTIONS[:-2], "--score", "day")
    assert "--covariate needs --arm" in fails(*models, "--covariate", folder / "before.smet")
    one = ("compare", folder / "after_old.smet", folder / "after_new.smet")
    assert "expected 2 files, one for each of after_old, after_new" in fails(
        *one, "--covariate", folder / "before.smet"
    )
    same = ("compare", folder / "after_old.smet", folder / "after.smet")
    assert "leave out" in fails(*same, "--covariate", f"{folder / 'after_old.smet'},{folder / 'after_new.smet'}")


def test_slices_that_contradict_all_rows(run: Any, folder: Path) -> None:
    rng = np.random.default_rng(1)
    arm, user = np.repeat(["new", "old"], 10_000), np.arange(20_000) // 4
    in_de = rng.random(20_000) < np.where(arm == "new", 0.3, 0.7)
    click = rng.random(20_000) < np.where(in_de, 0.4, 0.1) + 0.05 * (arm == "new")
    columns = {"click": click, "score": np.full(20_000, 0.2), "user": user, "arm": arm}
    pq.write_table(pa.table(columns | {"country": np.where(in_de, "de", "us")}), folder / "mixed.parquet")
    command = ("eval", folder / "mixed.parquet", *OPTIONS, *ROLES, "--by", "country")
    ran = run(*command, "--format", "json", "--report", folder / "page.html")
    (note,) = ran.verdicts[0]["notes"]
    assert note.startswith("Simpson's paradox in ctr by country: new is lower than old over all rows")
    assert note in run(*command).out
    assert "paradox in ctr by country: new is lower than old over all rows" in (folder / "page.html").read_text()
