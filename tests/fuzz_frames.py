"""Mutants of saved states, most with their checksums repaired, so that they reach the depths of the decoder.

``python tests/fuzz_frames.py 1000000`` runs a million; the tests run 100,000.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import resource
import struct
import sys
import time
import zlib
from typing import Any

import numpy as np

import streammetrics as sm
from streammetrics.numerics.canonical import canonical_json
from streammetrics.state import frame
from streammetrics.state.frame import WORDS as DICTIONARY
from streammetrics.state.schema import Schema

PREFIX, ROW = 16, 48
NUMBERS = (0, 1, -1, 2, 7, 8, 24, 25, 1 << 20, 1 << 31, 1 << 33, 1 << 62, 1 << 63, 1 << 64, -(1 << 63), 0.5, 1e308)
WORDS = (
    "",
    "auc",
    "scores",
    "score_sums",
    "decisions",
    "tally",
    "count",
    "high",
    "once",
    "rows",
    "fixed",
    "exact",
    "flag",
    "sliced",
    "bundle",
    "x" * 99,
)
ODD = (None, True, False, [], {}, [[]], {"float": "nan"}, {"float": "inf"}, {"bytes": "00"})


def seeds() -> list[bytes]:
    """One small object of every kind."""
    y, s, w = np.array([0, 1, 0, 1, 1]), np.array([0.1, 0.7, 0.2, 0.6, 0.7]), [1, 2, 0.5, 0, 3]
    table = {"y_true": y, "y_score": s, "sample_weight": w, "v": ["a", None, "b", "a", "c"], "n": [1, 2, 3, 1, 2]}
    things: list[Any] = [
        sm.AUC(bits=8).update(y, s),
        sm.AUC(bits=8, max_fpr=0.5).update(y, s, sample_weight=w),
        sm.LogLoss(scale="logit").update(y, s * 9e9, sample_weight=w),
        sm.Precision(threshold=0.3).update(y, s),
        sm.MetricCollection({"ctr": sm.Task([sm.AUC(bits=8), sm.LogLoss(), sm.F1()], sample_weight="w", where="v")}),
        sm.Sliced(sm.AUC(bits=8), by=("v", "n"), limit=2, values=[("a", 1)]).update(table),
        sm.Sliced([sm.CTR(), sm.Calibration()], by="v").update(table),
        sm.MetricCollection({"deep": sm.Sliced(sm.Sliced(sm.CTR(), by="n"), by="v"), "auc": sm.AUC(bits=8)}).update(
            table
        ),
        sm.GroupAUC().update(y, s, group=[1, 2, 1, 2, 1]),
        sm.Accuracy(labels="discover").update(["a", "b", "c"], ["a", "a", "c"]),
        sm.Bundle({"a": sm.CTR().update([0, 1]), "b": sm.Sliced(sm.CTR(), by="n").update(table)}),
    ]
    state = frame.write([sm.NormalizedEntropy().update(y, s).state], {"kind": "state"})
    return [*(t.to_bytes() for t in things), state]


def repaired(header: bytes, rest: bytes, like: bytes) -> bytes:
    """A frame around a header and what follows it, with lengths and checksum as they should be."""
    packed = deflated(header, DICTIONARY)
    body = like[:8] + struct.pack("<II", len(header), len(packed)) + packed + rest
    return body + struct.pack("<I", zlib.crc32(body))


def deflated(plain: bytes, words: bytes = b"") -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, *([words] if words else []))
    return packer.compress(plain) + packer.flush()


def opened(seed: bytes) -> tuple[bytes, bytes]:
    """The header of a frame, inflated, and what follows it."""
    length, packed = struct.unpack_from("<II", seed, 8)
    header = zlib.decompressobj(-15, DICTIONARY).decompress(seed[PREFIX : PREFIX + packed], length)
    return header, seed[PREFIX + packed : -4]


def spoiled(rest: bytes, sections: int, rng: random.Random) -> bytes:
    """A table and bodies of which one body, inflated, is changed, and deflated again."""
    rows = [list(struct.unpack_from("<QQ32s", rest, ROW * i)) for i in range(sections)]
    bodies, at = [], ROW * sections
    for _, size, _ in rows:
        bodies.append(rest[at : at + size])
        at += size
    which = rng.randrange(sections)
    unpacker = zlib.decompressobj(-15)
    plain = bytearray(unpacker.decompress(bodies[which]) + unpacker.unused_data)
    for _ in range(rng.randint(1, 6)):
        if plain:
            plain[rng.randrange(len(plain))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    if plain and rng.random() < 0.2:
        del plain[rng.randrange(len(plain)) :]
    bodies[which] = deflated(bytes(plain))
    rows[which][:2] = len(plain), len(bodies[which])
    return b"".join([*(struct.pack("<QQ32s", *row) for row in rows), *bodies])


def mutant(seed: bytes, rng: random.Random) -> bytes:
    """Change something: bytes, the header's fields, a section, or what is around it; most often repair the checksum."""
    header, rest = opened(seed)
    choice = rng.random()
    if choice < 0.5:
        tree = json.loads(header)
        for _ in range(rng.randint(1, 3)):
            twist(tree, rng)
        return repaired(canonical_json(tree).encode(), rest, seed)
    if choice < 0.8:
        return repaired(header, spoiled(rest, len(json.loads(header)["sections"]), rng), seed)
    raw = bytearray(seed)
    for _ in range(rng.randint(1, 8)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.2 else raw)


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


class Gullible(bytes):
    """A digest that is whatever the bytes say."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def check(thing: Any, data: bytes) -> None:
    """Raise unless what was accepted is sound: it is written and read alike, and merges."""
    again = sm.from_bytes(thing.to_bytes() if hasattr(thing, "to_bytes") else frame.write([thing], {"kind": "state"}))
    assert again == thing, data.hex()
    with contextlib.suppress(sm.CounterOverflowError, sm.StreamMetricsError):
        again.merge(thing)


def attack(count: int, seed: int = 0, *, max_bytes: int = 1 << 24) -> dict[str, float]:
    """Decode mutants; raise unless each is refused with StateFormatError, or accepted and sound."""
    rng, originals = random.Random(seed), seeds()
    accepted, slowest = 0, 0.0
    honest = Schema.digest
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        data = mutant(rng.choice(originals), rng)
        if i % 2:  # pretend that the digest was repaired as well
            Schema.digest = lambda schema, plain: Gullible(honest(schema, plain))  # type: ignore[method-assign]
        begin = time.perf_counter()
        try:
            thing = sm.from_bytes(data, max_bytes=max_bytes)
        except sm.StateFormatError:
            thing = None
        except BaseException as error:
            raise AssertionError(f"{error!r} escaped; the bytes were {data.hex()}") from error
        finally:
            Schema.digest = honest  # type: ignore[method-assign]
        slowest = max(slowest, time.perf_counter() - begin)
        if thing is not None:
            accepted += 1
            check(thing, data)
    grown = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ) / 1024  # resident: an array not touched is free
    return {"mutants": count, "accepted": accepted, "slowest_ms": slowest * 1e3, "grown_mib": grown}


if __name__ == "__main__":
    print(attack(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
