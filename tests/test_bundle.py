from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
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
    with pytest.raises(
        sm.IncompatibleStateError, match="the other object has no 'by key'; this object has no 'by other'"
    ):
        bundle.merge(make(by="other"))
    wrong = sm.Bundle({**make(), "lone": sm.Sliced(sm.CTR(), by="key").update(y_true=[1], key=["text"])})
    with pytest.raises(sm.IncompatibleStateError, match="lone: keys of key are of kind"):
        bundle.merge(wrong)
    for other in (bundle, sm.CTR()):
        with pytest.raises(sm.IncompatibleStateError):
            bundle.merge(other)  # type: ignore[arg-type]
    assert bundle.digest() == digest


def test_holds_what_can_be_saved():
    for wrong in ({"a": 3}, {"": sm.CTR()}, {"a": sm.extend.ScoreHistogram()}):
        with pytest.raises(TypeError):
            sm.Bundle(wrong)
    with pytest.raises(ValueError, match="at least one"):
        sm.Bundle({})
    with pytest.raises(KeyError, match=r"there is no .x.* in this bundle; the names are .*overall"):
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
        with pytest.raises(sm.IncompatibleStateError, match="passed twice"):
            sm.merge(parts)
    assert sm.merge([part, file, part.copy(), part.to_bytes(), part.to_bytes()]).state.row_counts[0] == 10


def test_what_it_holds_is_what_is_merged():
    """The objects themselves are added to: who else holds them sees it, and counts on."""
    ctr, slices = sm.CTR().update([0, 1]), sm.Sliced(sm.CTR(), by="k").update([0, 1], k=[1, 2])
    bundle = sm.Bundle({"ctr": ctr, "slices": slices})
    part = bundle.copy()
    bundle.merge(part)
    assert bundle["ctr"] is ctr
    assert ctr.state.row_counts[0] == 4
    ctr.update([1])
    assert bundle["ctr"].state.row_counts[0] == 5
    bundle.subtract(part)
    assert ctr.state.row_counts[0] == 3
    assert slices == part["slices"]
    with pytest.raises(ValueError, match="b: c: this object is already in the bundle under another name"):
        sm.Bundle({"a": ctr, "b": sm.Bundle({"c": ctr})})


def test_names_in_another_order():
    one, other = sm.CTR().update([0, 1]), sm.MetricCollection(sm.CTR(), sm.AUC()).update([1, 0], [0.2, 0.3])
    bundle = sm.Bundle({"a": one, "b": other})
    turned = sm.Bundle({"b": other.ordered(["auc", "ctr"]), "a": one.copy()})
    assert sm.Ledger(bundle).add("x", bundle).add("x", turned).total == bundle
    assert bundle.copy().merge(turned) == bundle.copy().merge(bundle.copy())


def test_rows_that_come_while_it_merges_are_counted():
    delta, part = sm.Delta(sm.CTR()), sm.Delta(sm.CTR()).update([1] * 10)
    ready, rounds = threading.Event(), 300

    def count():
        ready.wait()
        for _ in range(rounds):
            delta.update([0])

    counting = threading.Thread(target=count)
    counting.start()
    ready.set()
    for _ in range(rounds):
        delta.merge(part)
    counting.join()
    assert delta.added.state.row_counts[0] == 11 * rounds


@pytest.mark.slow
def test_things_of_unknown_classes_behind_one_another():
    """Each has as many states as its header says, also where nobody here knows what they are."""
    script = """
import streammetrics as sm
class Share(sm.extend.Metric, tag="test_bundle.share"):
    def make_state(self): return sm.CTR().make_state()
    def of(self, state): return 0.5
def sharded(seed): return sm.Sharded(Share(), unit="u").update([0, 1], u=[seed, 2])
made = sm.Bundle({"a": sharded(0), "b": sm.Delta(Share()).update([1]), "c": sharded(1), "d": sm.CTR().update([1])})
print(made.to_bytes().hex())
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    read = sm.from_bytes(bytes.fromhex(said))
    assert read["d"].compute() == 1.0
    assert sm.from_bytes(read.to_bytes()).digest() == read.digest()


def test_pickled_ledgers_keep_their_settings():
    ledger = sm.Ledger(sm.Sliced(sm.CTR(), by="k", on_invalid="drop", memory_limit=1 << 20))
    again = pickle.loads(pickle.dumps(ledger.add(1, ledger.total.update([0, 1], k=[1, 2]))))
    assert again == ledger
    assert (again.total.on_invalid, again.total.memory_limit) == ("drop", 1 << 20)


def test_what_it_holds_warns_again_once_it_is_reset():
    held = sm.Bundle({"inner": sm.Bundle({"ctr": sm.CTR()})})
    for _ in range(2):
        with pytest.warns(sm.UndefinedMetricWarning, match="ctr"):
            held["inner"]["ctr"].compute()
        held["inner"]["ctr"].compute()  # said once
        held.reset()
