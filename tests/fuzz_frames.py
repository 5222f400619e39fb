"""Mutants of saved states whose every length and digest is as it should be, so that they reach the depths.

``python tests/fuzz_frames.py 1000000`` is the long form; the tests run 20,000. A mutant is made of a saved object: its
bytes, its header, a section of it inflated, or, most often, its parts and settings, which are then written as honest ones
are. It is to be refused with StateFormatError; or what was read keeps what `judge` asks for.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import gc
import hashlib
import json
import random
import re
import resource
import struct
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from draws import VARIANTS

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric import OpaqueMetric
from streammetrics.collect.metric_like import MetricLike, empty_copy, states_of
from streammetrics.format import frame
from streammetrics.format.frame import WORDS as DICTIONARY
from streammetrics.laws.case import numbers
from streammetrics.laws.specimens import make_consistent, sample
from streammetrics.numerics import kernel_registry
from streammetrics.numerics.canonical import canonical_json
from streammetrics.state.axes import KINDS as KEYS
from streammetrics.state.axes import Vocabulary
from streammetrics.state.declare import Flat
from streammetrics.state.state import State
from streammetrics.state.tally import Entries

PREFIX, ROW = 16, 48
MAX_BYTES = 1 << 21
BRIER = 2 + 2.0**-10  # of several classes, whose probabilities need not add up to 1 to the last bit
CLOSE = 1e-8  # what rounded weights of groups, and discounted gains, may be beyond
LONGEST = 1.0 if __name__ == "__main__" else 2.0  # seconds of CPU for any one answer; tests share their machine
NUMBERS = (0, 1, -1, 2, 7, 8, 24, 25, 1 << 20, 1 << 31, 1 << 33, 1 << 62, 1 << 63, 1 << 64, -(1 << 63), 0.5, 1e308)
WORDS = (
    "", "auc", "scores", "score_sums", "decisions", "tally", "count", "high", "once", "rows", "fixed", "exact", "flag",
    "sliced", "bundle", "x" * 99,
)  # fmt: skip
ODD = (None, True, False, [], {}, [[]], {"float": "nan"}, {"float": "inf"}, {"bytes": "00"})
INTEGERS = (
    0, 0, 1, 2, 3, 5, 17, 255, 256, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 1 << 40, (1 << 41) - 1, 1 << 41, 1 << 53, 1 << 61,
    (1 << 62) - 1, (1 << 63) - 1,
)  # fmt: skip
SHARE = {
    "accuracy", "auc", "average_precision", "balanced_accuracy", "ctr", "err", "error_rate",
    "expected_calibration_error", "f1", "fbeta", "group_auc", "hamming_loss", "hit_rate", "ks", "map",
    "maximum_calibration_error", "mrr", "ndcg", "precision", "precision_at_k", "predicted_ctr", "r_precision", "rbp",
    "recall", "recall_at_k", "specificity", "subset_accuracy", "top_k_accuracy",
    "label_ranking_average_precision", "label_ranking_loss", "precision_at_recall", "recall_at_precision",
    "sensitivity_at_specificity", "max_fbeta", "false_positive_rate", "jaccard",
    "alpha_ndcg", "bedroc", "bpref", "catalogue_coverage", "cluster_accuracy", "completeness", "contingency_coefficient",
    "cramers_v", "critical_success_index", "demographic_parity_ratio", "eleven_point_precision", "equal_error_rate",
    "equal_opportunity_ratio", "equalized_odds_ratio", "err_ia", "exposure_gini", "fall_out_at_k",
    "false_discovery_rate", "false_negative_rate", "false_omission_rate", "fbeta_at_k", "flip_rate", "fowlkes_mallows",
    "fowlkes_mallows_index", "geometric_map", "geometric_mean_score", "group_average_precision", "h_measure",
    "homogeneity", "inferred_ap", "interpolated_precision", "interval_coverage", "intra_list_diversity", "judged_at_k",
    "log_auc", "negative_predictive_value", "normalized_mutual_information", "ordered_pair_accuracy", "personalisation",
    "precision_at_k_rows", "prevalence", "prevalence_threshold", "q_measure", "rand_score", "recall_at_fixed_precision",
    "regression_auc", "relative_precision", "selection_rate", "session_precision_at_k", "session_recall_at_k",
    "set_average_precision", "specificity_at_sensitivity", "subtopic_recall", "tail_share", "thresholded_auc",
    "tschuprows_t", "unique_share", "v_measure", "xauc",
    "binary_gain", "geometric_bpref", "ndcg_at_levels", "ndcg_at_relevant", "normalized_gain", "original_ndcg",
}  # fmt: skip
SIGNED = {
    "gini", "matthews_corrcoef", "cohen_kappa", "pearson_correlation", "informedness", "markedness",
    "adjusted_rand_score", "kendall_correlation", "spearman_correlation", "concordance_correlation",
}  # fmt: skip
NOT_NEGATIVE = {
    "log_loss", "normalized_entropy", "calibration", "confusion_matrix", "lift", "bucket_error", "group_log_loss",
    "group_calibration_error", "mae", "mse", "rmse", "mape", "smape", "wmape", "rmsle", "msle", "pinball_loss",
    "huber_loss",
    "tweedie_deviance", "poisson_deviance", "gamma_deviance", "median_absolute_error", "max_error", "variance",
    "distinct_count", "distinct_sample", "coverage_error", "wmae", "count", "cumulative_gain", "dcg",
    "average_popularity", "average_relevance_position", "calibration_free_ne", "crps_ensemble", "crps_quantiles",
    "diagnostic_odds_ratio", "enrichment_factor", "entropy", "expected_mutual_information", "exposure_entropy",
    "false_negatives", "false_positives", "focal_loss", "hinge_loss", "hits_at_k", "hosmer_lemeshow", "idcg",
    "jensen_shannon_divergence", "log_cosh", "mase", "mean_rank",
    "minkowski_distance", "mutual_information", "negative_likelihood_ratio", "novelty",
    "pair_confusion_matrix", "positive_likelihood_ratio", "relative_squared_error",
    "squared_hinge_loss", "standard_deviation", "true_negatives", "true_positives",
}  # fmt: skip


# -- what is mutated -------------------------------------------------------------------------------------------------


def fed(metric: Any, rng: np.random.Generator, weighted: bool) -> Any:
    """A metric that has seen some rows."""
    state = metric.make_state()
    style = str(rng.choice(["plain", "ties", "saturated"]))
    return empty_copy(metric).update(make_consistent(state, sample(state.needs(), rng, 14, style, weighted=weighted)))


def originals() -> list[Any]:
    """Objects of every metric at several settings, with weights and without, and of every kind that holds them."""
    rng = np.random.default_rng(0)
    return [fed(m, rng, weighted) for m in VARIANTS for weighted in (False, True)] + [
        make() for make in HOLDERS.values()
    ]


Y, S, W = np.array([0, 1, 0, 1, 1]), np.array([0.1, 0.7, 0.2, 0.6, 0.7]), [1, 2, 0.5, 0, 3]
GROUPS = np.array([1, 2, 1, 2, 1])
TABLE = {"y_true": Y, "y_score": S, "sample_weight": W, "v": ["a", None, "b", "a", "c"], "n": [1, 2, 3, 1, 2]}
USERS: dict[str, Any] = {"group": GROUPS, "sample_weight": W}
TIMES = np.array(["2024-05-01T10", "2024-05-01T11", "1960", "2024-05-02", "2024-05-01T10:30"], "M8[s]")
WINDOW_ROWS = TABLE | {"n": [-7, 2, 3, 100, 2], "t": TIMES}


def partition() -> sm.GroupAUC:
    """Return a metric of one of two partitions of the groups."""
    part = sm.group_partition(GROUPS, 2) == 0
    return sm.GroupAUC(partition=(0, 2)).update(Y[part], S[part], group=GROUPS[part])


def merged() -> sm.GroupAUC:
    """Return a metric of sorted groups, one of which lies on both sides of the border between two parts."""
    first, second = sm.GroupAUC(grouped="sorted"), sm.GroupAUC(grouped="sorted")
    first.update(Y, S, group=[1, 1, 2, 3, 3])
    return first.merge(second.update(Y, S, group=[3, 4, 4, 5, 5]))


def corrected() -> sm.Delta:
    """Return a correction that retracts some rows."""
    delta = sm.Delta(sm.Windowed(sm.CTR(), width="1d", time="t")).update(WINDOW_ROWS)
    return delta.retract({name: column[:2] for name, column in WINDOW_ROWS.items()})


def shard_rows() -> dict[str, Any]:
    """Return rows of so many units that values have intervals."""
    rng = np.random.default_rng(3)
    rows: dict[str, Any] = {"y_true": rng.integers(0, 2, 60), "y_score": rng.random(60), "group": np.arange(60) % 20}
    return rows | {"v": rng.choice(["a", "b"], 60), "n": rng.integers(0, 9, 60), "value": rng.random(60)}


def sharded(*metrics: Any) -> sm.Sharded:
    """Return metrics by shards of users."""
    return sm.Sharded(*metrics, unit="group", shards=8)


HOLDERS: dict[str, Callable[[], Any]] = {
    "scores": lambda: sm.AUC().update(Y, S),
    "few exact rows": lambda: sm.AUC(limit=2).update(Y, S, sample_weight=W),
    "real scores": lambda: sm.AUC(scale="real").update(Y, S, sample_weight=W),
    "ks": lambda: sm.KS().update(Y, S),
    "dropped rows": lambda: sm.AUC(on_invalid="drop").update([0, 1, 2], [0.1, 0.2, 7.0]),
    "groups": lambda: sm.GroupAUC().update(Y, S, **USERS),
    "sorted groups": lambda: sm.GroupAUC(grouped="sorted").update(Y[:3], S[:3], group=[1, 1, 2]),
    "merged sorted groups": merged,
    "sample of groups": lambda: sm.GroupAUC(sample=True, sample_rows=3).update(Y, S, group=GROUPS),
    "partition": partition,
    "sealed partition": lambda: sm.seal(partition()),
    "sealed groups": lambda: sm.seal(sm.GroupAUC().update(Y, S, **USERS)),
    "task": lambda: sm.MetricCollection({
        "ctr": sm.Task([sm.AUC(bits=8), sm.LogLoss(), sm.F1()], sample_weight="w", where="v")
    }),
    "slices with a limit": lambda: sm.Sliced(
        sm.AUC(bits=8), by=("v", "n"), limit=2, values=[("a", 1)]
    ).update(TABLE),
    "slices": lambda: sm.Sliced([sm.CTR(), sm.Calibration(), sm.AUC()], by="v").update(TABLE),
    "slices of discovered classes": lambda: sm.Sliced(sm.Accuracy(labels="discover"), by="v").update(
        {"y_true": Y, "y_pred": Y[::-1], "v": TABLE["v"]}
    ),
    "slices of groups": lambda: sm.Sliced(sm.GroupAUC(), by="v").update(TABLE | USERS),
    "slices in slices": lambda: sm.MetricCollection({
        "deep": sm.Sliced(sm.Sliced(sm.CTR(), by="n"), by="v"), "auc": sm.AUC(bits=8)
    }).update(TABLE),
    "windows": lambda: sm.Windowed([sm.CTR(), sm.AUC(bits=8)], width=4, time="n", keep=2).update(WINDOW_ROWS),
    "windows of slices": lambda: sm.Windowed(
        sm.Sliced(sm.LogLoss(), by="v", limit=1), width="1h", time="t", keep=30
    ).update(WINDOW_ROWS),
    "slices of windows": lambda: sm.Sliced(sm.Windowed(sm.CTR(), width="1d", time="t"), by="v").update(WINDOW_ROWS),
    "correction": corrected,
    "shards": lambda: sharded([sm.AUC(bits=8), sm.CTR(), sm.LogLoss(), sm.Quantile(q=0.5)]).update(shard_rows()),
    "slices of shards": lambda: sm.Sliced(sharded(sm.GroupAUC()), by="v").update(shard_rows()),
    "slices of windows of shards": lambda: sm.Sliced(
        sm.Windowed(sharded(sm.AUC()), width=4, time="n"), by="v"
    ).update(shard_rows()),
    "bundle": lambda: sm.Bundle({"a": sm.CTR().update([0, 1]), "b": sm.Sliced(sm.CTR(), by="n").update(TABLE)}),
    "ledger": lambda: sm.Ledger(sm.CTR()).add("a", sm.CTR().update([0, 1])).add("b", sm.CTR().update([1])),
    "state": lambda: sm.NormalizedEntropy().update(Y, S).state,
}  # fmt: skip
"""An object of every kind, and metrics in states that few rows do not lead to, by name; nothing is counted on import."""


def written(thing: Any) -> bytes:
    """An object, or a state, as bytes."""
    return thing.to_bytes() if isinstance(thing, MetricLike) else frame.write_frame([thing], {"kind": "state"})


def deflated(plain: bytes, words: bytes = b"") -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, *([words] if words else []))
    return packer.compress(plain) + packer.flush()


def sealed(tree: Any, plains: list[bytes], like: bytes) -> bytes:
    """A frame of a header and sections, with lengths, digests and checksum as they should be; written from the format."""
    text = canonical_json(tree).encode()
    heads = tree.get("sections") if isinstance(tree, dict) else None
    heads = heads if isinstance(heads, list) else []
    packed, bodies = deflated(text, DICTIONARY), [deflated(p) for p in plains]
    table = b""
    for i, (plain, body) in enumerate(zip(plains, bodies, strict=True)):
        said = canonical_json(heads[i] if i < len(heads) else None).encode()
        table += struct.pack("<QQ32s", len(plain), len(body), hashlib.sha256(said + b"\0" + plain).digest())
    whole = like[:8] + struct.pack("<II", len(text), len(packed)) + packed + table + b"".join(bodies)
    return whole + struct.pack("<I", zlib.crc32(whole))


def opened(seed: bytes) -> tuple[Any, list[bytes]]:
    """The header of a frame, and its sections, inflated."""
    length, packed = struct.unpack_from("<II", seed, 8)
    tree = json.loads(zlib.decompressobj(-15, DICTIONARY).decompress(seed[PREFIX : PREFIX + packed], length))
    at, n, plains = PREFIX + packed, len(tree["sections"]), []
    sizes = [struct.unpack_from("<QQ32s", seed, at + ROW * i)[1] for i in range(n)]
    at += ROW * n
    for size in sizes:
        unpacker = zlib.decompressobj(-15)
        plains.append(unpacker.decompress(seed[at : at + size]) + unpacker.unused_data)
        at += size
    return tree, plains


# -- how -------------------------------------------------------------------------------------------------------------


def of_bytes(thing: Any, seed: bytes, rng: random.Random) -> bytes:
    """Some bytes changed; most often the checksum is made good again."""
    raw = bytearray(seed)
    for _ in range(rng.randint(1, 8)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    if rng.random() < 0.2:
        del raw[rng.randrange(len(raw)) :]
    if rng.random() < 0.7 and len(raw) > 4:
        raw[-4:] = struct.pack("<I", zlib.crc32(raw[:-4]))
    return bytes(raw)


def of_header(thing: Any, seed: bytes, rng: random.Random) -> bytes:
    """The header twisted somewhere."""
    tree, plains = opened(seed)
    for _ in range(rng.randint(1, 2)):
        twist(tree, rng)
    return sealed(tree, plains, seed)


def of_section(thing: Any, seed: bytes, rng: random.Random) -> bytes:
    """Bytes of a plain section changed; most often one, by little."""
    tree, plains = opened(seed)
    which = rng.randrange(len(plains))
    plain = bytearray(plains[which])
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6)) if plain else 0):
        at = rng.randrange(len(plain))
        plain[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256), plain[at] ^ 1, (plain[at] + 1) % 256))
    if plain and rng.random() < 0.1:
        del plain[rng.randrange(len(plain)) :]
    plains[which] = bytes(plain)
    return sealed(tree, plains, seed)


def of_content(thing: Any, seed: bytes, rng: random.Random) -> bytes:
    """Parts, keys and settings changed, and written as honest ones are."""
    states = list(states_of(thing)) if isinstance(thing, MetricLike) else [thing]
    if isinstance(thing, sm.extend.Metric) and rng.random() < 0.25:
        thing, states[0] = other_settings(thing, states[0], rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        which = rng.randrange(len(states))
        states[which] = distorted(states[which], rng)
    return frame.write_frame(
        states, definition_of(thing).header() if isinstance(thing, MetricLike) else {"kind": "state"}
    )


KINDS: dict[str, tuple[Callable[[Any, bytes, random.Random], bytes], float]] = {
    "bytes": (of_bytes, 0.05), "header": (of_header, 0.1), "section": (of_section, 0.25), "content": (of_content, 0.6),
}  # fmt: skip


def twist(tree: Any, rng: random.Random) -> None:
    """Change one thing somewhere in a tree of JSON."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []
        if not keys:
            return
        key = rng.choice(list(keys))
        if isinstance(tree[key], (dict, list)) and tree[key] and rng.random() < 0.85:
            tree = tree[key]
            continue
        kind = rng.random()
        if kind < 0.4:
            tree[key] = rng.choice(NUMBERS)
        elif kind < 0.6:
            tree[key] = rng.choice(WORDS)
        elif kind < 0.75:
            tree[key] = copy.deepcopy(rng.choice(ODD))
        elif kind < 0.85:
            del tree[key]
        elif isinstance(tree, dict):
            tree[rng.choice(WORDS)] = tree[key]
        else:
            tree.insert(rng.randrange(len(tree) + 1), tree[key])
        return


# -- parts -----------------------------------------------------------------------------------------------------------


def distorted(state: State, rng: random.Random) -> State:
    """A state with something in it changed: not what counting makes, and often not canonical."""
    cells = state.cells
    names = [n for n, a in cells.flats.items() if a.size] * 2 + [n for n, e in cells.tallies.items() if len(e)] * 3
    names += [n for n, p in state.parts().items() if isinstance(p, Flat) and p.optional and n not in cells.flats]
    names += ["keys"] if cells.keys.size else []
    names += ["inner"] if cells.inner_keys is not None and len(cells.inner_keys) else []
    names += ["words"] if cells.class_vocabulary is not None or cells.vocabularies else []
    if not names:
        return state
    name = rng.choice(names)
    if name in cells.tallies:
        made = _entries(cells.tallies[name], state.parts()[name].place_count(state), rng)
        return state.with_cells(replace(cells, tallies={**cells.tallies, name: made}))
    if name == "keys":
        return state.with_cells(replace(cells, keys=_jogged(cells.keys, rng)))
    if name == "inner":
        return state.with_cells(replace(cells, inner_keys=_jogged(cells.inner_keys, rng)))
    if name == "words":
        return state.with_cells(_other_words(cells, rng))
    if name in cells.flats and state.parts()[name].optional and rng.random() < 0.2:
        return state.with_cells(replace(cells, flats={n: a for n, a in cells.flats.items() if n != name}))
    array = state.read_cells(state.parts()[name])
    if not array.size:
        return state
    flats = {**cells.flats, name: _numbers(array, state.parts()[name].form, rng)}
    return state.with_cells(replace(cells, flats={n: flats[n] for n in state.parts() if n in flats}))


def _jogged(table: Any, rng: random.Random) -> Any:
    out = table.copy()
    i = rng.randrange(out.size)
    out.reshape(-1)[i] += rng.choice((-2, -1, 1, 2, 9))
    return out


def _other_words(cells: Any, rng: random.Random) -> Any:
    if cells.class_vocabulary is not None:
        return replace(cells, class_vocabulary=_word(cells.class_vocabulary, rng))
    i = rng.randrange(len(cells.vocabularies))
    return replace(cells, vocabularies=tuple(_word(w, rng) if k == i else w for k, w in enumerate(cells.vocabularies)))


def _word(words: Vocabulary, rng: random.Random) -> Vocabulary:
    kind = rng.choice((*KEYS, words.kind or "string"))
    if Vocabulary(kind).is_text:
        return Vocabulary.from_values(
            kind, [rng.choice((b"", b"a", b"\xff", b"1.50", b"z" * 300, b"%d" % i)) for i in range(4)]
        )
    return Vocabulary.from_values(kind, [rng.choice((-1, 0, 1, i, 1 << 62, 1 << 63)) for i in range(4)])


def _numbers(array: Any, form: str, rng: random.Random) -> Any:
    out = array.copy()
    flat = out.reshape(-1)
    some = np.flatnonzero(flat) if rng.random() < 0.5 else np.zeros(0, np.int64)
    i = int(rng.choice(some)) if len(some) else rng.randrange(len(flat))
    if out.dtype == np.uint8:
        flat[i] = rng.choice((0, 1, 2, 40, 61, 64, 65, 66, 255))
        return out
    how, j = rng.random(), rng.randrange(len(flat))
    if how < 0.35:
        flat[i] = rng.choice(INTEGERS) * (rng.choice((1, 1, -1)) if form not in ("count", "once") else 1)
    elif how < 0.65:
        step = rng.choice((-2, -1, 1, 2, 1 << 10, -(1 << 20), 1 << 20, 1 << 30))
        flat[i] = max(-(1 << 62), min((1 << 62) - 1, int(flat[i]) + step))
    elif how < 0.75:
        flat[i] = -flat[i]
    elif how < 0.85:
        flat[i], flat[j] = flat[j], flat[i]
    else:
        out[...] = 0 if rng.random() < 0.5 else rng.choice(INTEGERS)
    if form in ("count", "once"):
        np.maximum(out, 0, out=out)
    if form in ("fixed", "square"):
        out[..., 1] &= (1 << 40) - 1
    if form == "exact":
        out[..., :-1] &= (1 << 32) - 1
    return out


def _entries(e: Entries, places: int, rng: random.Random) -> Entries:
    counts, codes, excess, high, shift = e.counts.astype(np.int64), e.codes.copy(), e.excess, e.high, e.shift
    i, how = rng.randrange(len(e)), rng.random()
    if how < 0.3:
        counts[i] = rng.choice((1, 2, 3, 1 << 20, 1 << 31, 1 << 40, 1 << 61, (1 << 62) - 1))
    elif how < 0.5:
        excess = np.zeros((len(e), 2), np.int64) if excess is None else excess.copy()
        excess[i, 0] = rng.choice((0, 1, -1, -(int(counts[i]) << 20), -(int(counts[i]) << 20) + 1, 1 << 20, 1 << 61))
        excess[i, 1] = rng.choice((0, 1, (1 << 40) - 1))
    elif how < 0.6 and len(e) > 1:
        return e.select(np.arange(len(e)) != i)
    elif how < 0.95:
        mask = (1 << min(shift, 64)) - 1
        place = int(codes[i]) & mask
        place = (
            rng.choice((place ^ 1, place + 1, place - 1, 0, 1, places - 1, places - 2, rng.randrange(places))) & mask
        )
        codes = codes.astype(np.uint64)
        codes[i] = (int(codes[i]) & ~mask & ((1 << 64) - 1)) | place
        words = [codes] if high is None else [codes, high]
        order = np.lexsort(words)
        codes, counts = codes[order], counts[order]
        excess, high = (None if a is None else a[order] for a in (excess, high))
    else:
        excess = None
    return Entries(shift, codes, counts, excess, high)


# -- settings --------------------------------------------------------------------------------------------------------


def other_settings(metric: Any, state: State, rng: random.Random) -> tuple[Any, State]:
    """The metric at other settings, with what its state held brought into the shape of the new one."""
    fields = [f for f in dataclasses.fields(metric) if f.init and not f.metadata.get("operational")]
    chosen = rng.choice(fields)
    try:
        made = type(metric)(**(metric.settings | {chosen.name: _setting(chosen, getattr(metric, chosen.name), rng)}))
        like = made.make_state()
    except (TypeError, ValueError):
        return metric, state
    return made, reshaped(state, like) or state


def _setting(field: Any, now: Any, rng: random.Random) -> Any:
    rules = field.metadata.get("rules", {})
    some = [rules.get("low"), rules.get("high"), *(rules.get("choices") or ())] * 2
    some += [None, 0, 1, 2, 3, 5, 8, 9, 0.5, 0.0, 1.0, 1e-300, 1e300, -1.0, "x", ()]
    if isinstance(now, (int, float)) and not isinstance(now, bool):
        some += [now + 1, now - 1, now * 2, now / 2] * 2
    if isinstance(now, tuple):
        some += [now + now, now[:-1], now[::-1]] * 2
    return rng.choice(some)


def reshaped(state: State, like: State) -> State | None:
    """What a state holds, repeated or cut to the shape of another; None where that cannot be, or would be large."""
    cells = like.make_empty_cells(state.axes)
    theirs = state.cells
    if (cells.inner_keys is None) != (theirs.inner_keys is None) or (cells.class_vocabulary is None) != (
        theirs.class_vocabulary is None
    ):
        return None
    flats, tallies = {}, {}
    for name, part in like.parts().items():
        if isinstance(part, Flat):
            old = theirs.flats.get(name)
            extents = part.extents(like)
            if np.prod(extents, dtype=float) * max(len(theirs.keys), 1) > MAX_BYTES / 4:
                return None
            if old is not None or not part.optional:
                rows = len(theirs.keys) if part.front or cells.inner_keys is None else len(theirs.inner_keys)
                old = part.empty(like, rows) if old is None else old
                if part.limbs and old.shape[-1] == part.limbs:
                    axes = old.reshape(-1, part.limbs)
                    n = int(np.prod(extents[:-1], dtype=np.int64)) * rows
                    flats[name] = np.resize(axes, (n, part.limbs)).reshape(rows, *extents)
                else:
                    flats[name] = np.resize(old, (rows, *extents)).astype(part.dtype)
        else:
            held = theirs.tallies.get(name)
            if held is None or held.shift != part.shift(like) or held.is_wide != part.is_wide(like):
                tallies[name] = cells.tallies[name]
                if held is not None and not held.is_wide and not part.is_wide(like) and len(held):
                    place = np.unique(held.places.astype(np.int64) % part.place_count(like))
                    codes = place.astype(np.uint64)
                    tallies[name] = Entries(part.shift(like), codes, np.resize(held.counts, len(codes)))
            else:
                tallies[name] = held
    return like.with_cells(replace(theirs, axes=state.axes, flats=flats, tallies=tallies))


# -- what is asked of what was read ----------------------------------------------------------------------------------


class SurpriseError(AssertionError):
    """What was accepted does not keep what it should."""


class SlowError(SurpriseError):
    """It takes too long."""


def tag_of(thing: Any) -> str:
    """Return the tag of a metric or a state; of anything else the name of its class."""
    return str(getattr(getattr(thing, "about", thing), "tag", type(thing).__name__))


@contextlib.contextmanager
def soon(what: str) -> Iterator[None]:
    begin = time.process_time()
    yield
    if time.process_time() - begin > LONGEST:
        raise SlowError(f"{what} took {time.process_time() - begin:.1f} s")


def judge(thing: Any, honest: Any) -> None:
    """Raise unless what was accepted is sound: written and read alike, answers, merges with an honest copy or refuses."""
    with soon("to_bytes"):
        data = written(thing)
    again = sm.from_bytes(data)
    if again != thing or written(again) != data:
        raise SurpriseError("what was read is not what is written")
    if isinstance(thing, OpaqueMetric):
        if thing.about.tag in sm.extend.METRICS or not isinstance(thing.about.tag, str):
            raise SurpriseError(f"the tag {thing.about.tag!r} is taken for one of an absent package")
        return
    if isinstance(thing, sm.extend.Metric):
        answers(thing)
    elif isinstance(thing, State):
        thing.without_axes.facts()
    else:
        with soon("table"):
            try:
                records = thing.table() if hasattr(thing, "table") else ()
            except sm.StreamMetricsError as error:
                if "is unknown; import the package" not in str(error):
                    raise
                return
            for record in records:
                in_order(record["bound_low"], record["value"], record["bound_high"])
            repr(thing)
    merges(thing, honest)


def answers(metric: Any) -> None:
    """Raise unless every answer comes, in its range and within its bounds."""
    with soon("compute"):
        value = metric.compute()
    with soon("bounds"):
        low, high = metric.bounds()
    with soon("explain"):
        metric.explain()
    with soon("interval"):
        interval = metric.interval()
    if not interval.reason and not np.any(interval.low <= interval.high):
        raise SurpriseError("an interval ends before it begins")
    in_order(low, value, high)
    found = numbers(value)
    # Adjusted balanced accuracy is informedness.
    base = "informedness" if getattr(metric, "adjusted", False) else metric.about.tag
    for tags, least, most in ((SHARE, 0, 1), ({"brier_score"}, 0, BRIER), (SIGNED, -1, 1), (NOT_NEGATIVE, 0, np.inf)):
        if (
            base in tags
            and not getattr(metric, "min_fpr", 0.0)
            and ((found < least - CLOSE) | (found > most + CLOSE)).any()
        ):
            raise SurpriseError(f"out of its range: {value}")


def in_order(low: Any, value: Any, high: Any) -> None:
    if low is None:
        return
    a, v, b = numbers(low), numbers(value), numbers(high)
    if not (((a <= v) & (v <= b)) | (np.isnan(v) & np.isnan(a) & np.isnan(b))).all():
        raise SurpriseError(f"the value is beyond its bounds: {low} {value} {high}")


def merges(thing: Any, honest: Any) -> None:
    """Raise unless an honest copy takes it in, and answers, or refuses it and is as it was."""
    ours = honest if isinstance(honest, State) else honest.copy()
    before, theirs = written(ours), written(thing)
    try:
        with soon("merge"):
            made = ours.merge(thing)
    except sm.StreamMetricsError:
        if written(ours) != before:
            raise SurpriseError("a merge that failed changed the honest side") from None
        return
    finally:
        if written(thing) != theirs:
            raise SurpriseError("a merge changed the other side")
    data = written(made)
    if written(sm.from_bytes(data)) != data:
        raise SurpriseError("what was merged is not what is written")
    if isinstance(made, sm.extend.Metric):
        answers(made)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """As on a server that only merges: numpy alone."""
    held = kernel_registry._FIND[:]
    kernel_registry._FIND.clear()
    try:
        yield
    finally:
        kernel_registry._FIND[:] = held


@contextlib.contextmanager
def within_memory(most: int = 1 << 30) -> Iterator[None]:
    """Let what takes much more memory than there is now fail with MemoryError."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@dataclasses.dataclass
class Report:
    """How an attack went: mutants and those that got past the door, by kind; surprises by what and where."""

    mutants: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    accepted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    surprises: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    slowest: float = 0.0
    seconds: float = 0.0

    def note(self, error: BaseException, data: bytes, tag: str) -> None:
        steps = [s for s in traceback.extract_tb(error.__traceback__) if "streammetrics/" in s.filename]
        where = f"{steps[-1].filename.rpartition('/')[2]}:{steps[-1].name}" if steps else "fuzz"
        said = re.sub(r"-?\d[\d.e+-]*", "#", str(error))[:60]
        what = f"{tag}: {type(error).__name__} in {where}: {said}"
        count, first = self.surprises.get(what, (0, data.hex()))
        self.surprises[what] = count + 1, first


def attack(count: int, seed: int = 0, things: list[Any] | None = None) -> Report:
    """Read mutants: each is refused with StateFormatError, or what was read is sound; all else is a surprise."""
    rng, report = random.Random(seed), Report()
    held = [(t, sm.from_bytes(written(t)), written(t)) for t in (things or originals())]
    for thing, settled, _ in held:  # they are sound themselves; and kernels are compiled before anything is timed
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(SlowError):
            judge(settled, thing)
    gc.collect()
    gc.freeze()  # or looking through what compilers leave behind takes a second now and then
    begin = time.process_time()
    names, shares = list(KINDS), [share for _, share in KINDS.values()]
    with warnings.catch_warnings(), within_memory():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", sm.UndefinedMetricWarning)
        # The bounds of what no rows made may be anything.
        warnings.simplefilter("ignore", sm.WideBoundsWarning)
        for i in range(count):
            if i % 50_000 == 0 < i:  # an hour without a word is long
                print(f"{i:,} of {count:,}: {len(report.surprises)} surprises", file=sys.stderr, flush=True)
            thing, settled, honest = rng.choice(held)
            kind = rng.choices(names, shares)[0]
            with np.errstate(all="ignore"):
                try:
                    data = KINDS[kind][0](thing, honest, rng)
                except (ValueError, OverflowError, IndexError, TypeError, MemoryError):  # too odd to be written
                    continue
            if data == honest:
                continue
            report.mutants[kind] += 1
            if i % 2:
                one(data, thing, kind, report)
            else:
                with without_kernels():
                    one(data, settled, kind, report)
    gc.unfreeze()
    report.seconds = time.process_time() - begin
    return report


def one(data: bytes, thing: Any, kind: str, report: Report) -> None:
    """Try one mutant."""
    begin = time.process_time()
    try:
        with soon("from_bytes"):
            made = sm.from_bytes(data, max_bytes=MAX_BYTES)
        report.accepted[kind] += 1
        judge(made, thing)
    except sm.StateFormatError as error:
        if made_it := [s for s in traceback.extract_tb(error.__traceback__) if s.name == "judge"]:
            report.note(error, data, f"{tag_of(thing)} {made_it[0].lineno}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        report.note(error, data, tag_of(thing))
    report.slowest = max(report.slowest, time.process_time() - begin)


if __name__ == "__main__":
    total, first = (int(sys.argv[i]) if len(sys.argv) > i else (1_000_000, 0)[i - 1] for i in (1, 2))
    done = attack(total, first)
    print(
        f"{dict(done.mutants)} mutants, {dict(done.accepted)} accepted, slowest {done.slowest:.2f} s, {done.seconds:.0f} s"
    )
    for what, (times, example) in sorted(done.surprises.items(), key=lambda s: -s[1][0]):
        print(f"{times:6} {what}\n       {example}")
