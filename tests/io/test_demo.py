import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammetrics.io.demo import write_demo_log
from streammetrics.io.logs import Log, LogError

ROWS = 300_000


def read(folder):
    log = Log(folder)
    return pa.Table.from_batches([batch for part in log.parts(log.columns) for batch in part.batches()])


def auc(label, score):
    ranks = np.empty(len(score))
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(label.sum())
    return (ranks[label == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(label) - positives))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "log"
    truth = write_demo_log(folder, ROWS)
    table = read(folder)
    return folder, truth, {name: table[name].to_numpy() for name in table.column_names}


def test_shape(demo):
    folder, truth, rows = demo
    assert truth.rows == truth.impressions == len(rows["click"]) == ROWS
    assert len(Log(folder).files) == 7
    assert set(rows["variant"]) == {"A", "B"}
    assert len(set(rows["country"])) == 12
    assert None in set(rows["country"])
    for name in ("pctr_a", "pctr_b", "pcvr"):
        assert rows[name].dtype == np.float32
        assert ((rows[name] > 0) & (rows[name] < 1)).all()
    assert set(rows["click"]) == {0, 1}
    assert (rows["convert"] <= rows["click"]).all()
    assert 0 < rows["convert"].sum() < rows["click"].sum()
    assert rows["weight"].min() > 0
    assert (np.diff(rows["ts"]) >= np.timedelta64(0, "ms")).all()
    assert (rows["ts"].astype("datetime64[D]").astype(str) == rows["day"]).all()


def test_users_are_heavy_tailed_and_keep_their_variant(demo):
    _, _, rows = demo
    users, inverse, counts = np.unique(rows["user_id"], return_inverse=True, return_counts=True)
    assert users.min() >= 0
    assert counts.max() > 100 * np.median(counts)
    in_b = np.bincount(inverse, weights=rows["variant"] == "B")
    assert set(in_b / counts) == {0.0, 1.0}
    assert abs(np.mean(in_b > 0) - 0.5) < 0.02


def test_the_truth_is_what_the_rows_estimate(demo):
    _, truth, rows = demo
    click = rows["click"]
    for variant in ("A", "B"):
        of = rows["variant"] == variant
        assert abs(click[of].mean() - truth.ctr[variant]) < 4 * np.sqrt(truth.ctr[variant] / of.sum())
    for name in ("pctr_a", "pctr_b"):
        calibration = rows[name].sum(dtype=float) / click.sum()
        assert abs(calibration / truth.calibration[name] - 1) < 4 / np.sqrt(click.sum())
        assert abs(auc(click, rows[name]) - truth.auc[name]) < 4 * 0.3 / np.sqrt(click.sum())
    clicked = click == 1
    conversions = rows["convert"].sum()
    assert abs(rows["pcvr"][clicked].sum() / conversions / truth.calibration["pcvr"] - 1) < 4 / np.sqrt(conversions)


def test_the_truth_is_as_advertised(demo):
    _, truth, _ = demo
    assert abs(truth.calibration["pctr_a"] - 1.15) < 0.02
    assert abs(truth.calibration["pctr_b"] - 1) < 0.02
    assert 0.65 < truth.auc["pctr_a"] < truth.auc["pctr_b"] - 0.02 < truth.auc["perfect"] < 0.9
    assert 0.02 < truth.lift < 0.1
    assert all(abs(rate - 0.02) < 0.002 for rate in truth.ctr.values())


@pytest.mark.slow
def test_same_seed_same_rows(tmp_path):
    for name, seed in {"a": 1, "b": 1, "c": 2}.items():
        write_demo_log(tmp_path / name, 5_000, seed)
    assert read(tmp_path / "a").equals(read(tmp_path / "b"))
    assert not read(tmp_path / "a").equals(read(tmp_path / "c"))


@pytest.mark.slow
def test_rare_clicks(tmp_path):
    truth = write_demo_log(tmp_path / "log", ROWS, ctr=0.001)
    assert all(abs(rate - 0.001) < 0.0001 for rate in truth.ctr.values())
    assert 200 < pq.read_table(tmp_path / "log", columns=["click"])["click"].to_numpy().sum() < 400


@pytest.mark.slow
def test_sampled_twin(demo, tmp_path):
    _, truth, full = demo
    rate = 0.1
    sampled = write_demo_log(tmp_path / "twin", ROWS, negative_rate=rate)
    twin = read(tmp_path / "twin")
    click = twin["click"].to_numpy()
    assert sampled.rows == len(click)
    assert (sampled.ctr, sampled.auc, sampled.calibration) == (truth.ctr, truth.auc, truth.calibration)
    assert click.sum() == full["click"].sum()
    assert abs((1 - click).sum() / (1 - full["click"]).sum() / rate - 1) < 0.03
    # Undoing the sampling of the scores gives back those of the full log; clicks are all there, in order.
    score = twin["pctr_a"].to_numpy().astype(float)
    corrected = score / (score + (1 - score) / rate)
    np.testing.assert_allclose(corrected[click == 1], full["pctr_a"][full["click"] == 1], rtol=1e-6)
    weight = np.where(click == 1, 1.0, 1 / rate)
    assert abs((corrected * weight).sum() / click.sum() / truth.calibration["pctr_a"] - 1) < 0.06
    assert score.mean() > 3 * full["pctr_a"].mean()


@pytest.mark.slow
def test_sampled_twin_with_the_scores_of_the_full_log(demo, tmp_path):
    _, _, full = demo
    write_demo_log(tmp_path / "twin", ROWS, negative_rate=0.1, sampled_scale=False)
    twin = read(tmp_path / "twin")
    click = twin["click"].to_numpy() == 1
    np.testing.assert_array_equal(twin["pctr_a"].to_numpy()[click], full["pctr_a"][full["click"] == 1])
    assert np.isin(twin["pctr_a"].to_numpy(), full["pctr_a"]).all()


@pytest.mark.slow
def test_more_days_than_rows_and_several_row_groups(tmp_path):
    assert write_demo_log(tmp_path / "few", 3, days=5).rows == 3
    assert len(read(tmp_path / "few")) == 3
    calls = []
    write_demo_log(tmp_path / "one", 300_000, days=1, progress=calls.append)
    assert pq.ParquetFile(tmp_path / "one" / "day=2025-06-02" / "part-0.parquet").metadata.num_row_groups == 3
    assert sum(calls) == 300_000


def test_an_interrupt_leaves_no_half_file(tmp_path):
    def interrupt(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_demo_log(tmp_path / "log", 1000, progress=interrupt)
    assert [path for path in (tmp_path / "log").rglob("*") if path.is_file()] == []


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(LogError, match="is not empty"):
        write_demo_log(tmp_path, 100)


@pytest.mark.parametrize(
    "option", [{"rows": 0}, {"seed": -1}, {"days": 0}, {"ctr": 0}, {"negative_rate": 0}, {"negative_rate": 1.1}]
)
def test_numbers_out_of_range(tmp_path, option):
    with pytest.raises(LogError, match="must be"):
        write_demo_log(tmp_path / "log", **{"rows": 100, **option})
