from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import streammetrics as sm


def make(*, seed: int = 0, by: str = "key") -> sm.Bundle:
    y, p, key = [0, 1, seed % 2], [0.1, 0.9, 0.4], ["a", f"b{seed}", None]
    arms = sm.Sliced([sm.AUC(), sm.CTR()], by=by).update(y_true=y, y_score=p, **{by: key})
    lone = sm.Sliced(sm.CTR(), by=by).update(y_true=y, **{by: [1, 2, seed]})
    return sm.Bundle({"overall": arms.total, f"by {by}": arms, "metric": sm.LogLoss().update(y, p), "lone": lone})


def test_round_trip():
    bundle = make()
    again = sm.from_bytes(bundle.to_bytes())
    assert again == bundle
    assert again.digest() == bundle.digest()
    assert list(again) == ["overall", "by key", "metric", "lone"]
    assert again["by key"]["a"] == bundle["by key"]["a"]
    assert pickle.loads(pickle.dumps(bundle)) == bundle


def test_merges_in_any_order(tmp_path):
    parts = [make(seed=i) for i in range(4)]
    paths = [sm.save(p, tmp_path / str(i)) for i, p in enumerate(parts)]
    assert (
        sm.merge(parts).digest() == sm.merge(reversed(paths)).digest() == sm.merge(p.to_bytes() for p in parts).digest()
    )
    assert parts[0] == make(seed=0)
    assert sm.merge(parts)["overall"] == sm.merge(p["overall"] for p in parts)


def test_merged_slices_take_more_rows():
    merged = sm.merge([make(seed=1).to_bytes(), make(seed=2)])
    direct = make(seed=1)["lone"].update(y_true=[0, 1, 0], key=[1, 2, 2])
    assert merged["lone"] == direct
    assert merged["lone"].update(y_true=[1], key=[7]).keys == [1, 2, 7]


def test_copies_are_independent():
    bundle = make()
    for other in (bundle.copy(), copy.copy(bundle), copy.deepcopy(bundle)):
        assert other == bundle
        other["metric"].update([1], [0.5])
        assert other != bundle


def test_a_failed_merge_changes_nothing():
    bundle, digest = make(), make().digest()
    with pytest.raises(sm.IncompatibleStateError, match="it has no 'by key'; it has 'by other', this one has not"):
        bundle.merge(make(by="other"))
    wrong = sm.Bundle({**make(), "lone": sm.Sliced(sm.CTR(), by="key").update(y_true=[1], key=["text"])})
    with pytest.raises(sm.IncompatibleStateError, match="lone: keys of key are of kind"):
        bundle.merge(wrong)
    for other in (bundle, sm.CTR()):
        with pytest.raises(sm.IncompatibleStateError):
            bundle.merge(other)  # type: ignore[arg-type]
    assert bundle.digest() == digest


def test_holds_what_can_be_saved():
    for wrong in ({"a": 3}, {"": sm.CTR()}, {"a": sm.ScoreHistogram()}):
        with pytest.raises(TypeError):
            sm.Bundle(wrong)
    with pytest.raises(ValueError, match="at least one"):
        sm.Bundle({})
    with pytest.raises(KeyError, match="there is no 'x'; there are 'overall'"):
        make()["x"]
    assert "by key: Sliced(" in repr(make())


def test_bundles_hold_bundles_and_slices_of_slices():
    deep = sm.Sliced(sm.Sliced(sm.CTR(), by="b"), by="a").update(y_true=[0, 1, 1], a=[1, 1, 2], b=["x", "y", "x"])
    whole = sm.Bundle({"parts": make(), "deep": deep})
    again = sm.merge([whole.to_bytes(), whole])
    assert again["parts"]["lone"] == sm.merge([make()["lone"], make()["lone"].to_bytes()])
    assert again["deep"][1]["x"].compute() == 0.0
    assert again["deep"].total == sm.merge([deep, deep.copy()]).total


def test_damaged_bytes_are_a_format_error():
    data = make().to_bytes()
    for i in range(0, len(data), 7):
        for broken in (data[:i], data[:i] + bytes([data[i] ^ 0x41]) + data[i + 1 :]):
            with pytest.raises(sm.StateFormatError):
                sm.from_bytes(broken)


def test_a_part_counts_once(tmp_path: Path) -> None:
    """A file or an object that is given twice is refused, by whatever name; equal bytes may be of other rows."""
    part = sm.CTR().update([0, 1])
    file = sm.save(part, tmp_path / "part.smet")
    (tmp_path / "again.smet").symlink_to(file)
    for parts in ([file, file], [file, str(file)], [file, tmp_path / "again.smet"], [part, part]):
        with pytest.raises(sm.IncompatibleStateError, match="given twice"):
            sm.merge(parts)
    assert sm.merge([part, file, part.copy(), part.to_bytes(), part.to_bytes()]).state.rows_seen[0] == 10
