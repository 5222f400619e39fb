"""What the application is tested on: a store and a board in memory, with the calls that the real ones have."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.serve.api.auth import OWNER, READER, issue_token
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.merge_parts import merge_parts
from streammetrics.serve.part_keys import PartKey, PostedPart
from streammetrics.serve.store import StoredPart
from streammetrics.serve.store.records import DefinitionVersion

NOW = 494540 * 3600.0  # 2026-06-01T20
HOUR = "2026-06-01T09"
DEFINITION: dict[str, Any] = {
    "arms": {"A": 0.5, "B": 0.5},
    "control": "A",
    "primary": "ctr",
    "model": ["auc"],
    "slices": ["country"],
    "start": "2026-06-01T00",
    "title": "<script>alert(1)</script>",
}


class Token(NamedTuple):
    name: str
    hashed: str


class Store:
    """Everything in dictionaries; `fails` is what the next calls raise."""

    def __init__(self) -> None:
        self.kept: dict[PartKey, PostedPart] = {}
        self.aside: list[PostedPart] = []
        self.defined: dict[str, list[str]] = defaultdict(list)
        self.defined_at: dict[str, list[float]] = defaultdict(list)
        self.audited: list[tuple[str, str, str]] = []
        self.hashes: dict[str, list[Token]] = defaultdict(list)
        self.sessions: dict[str, tuple[str, float]] = {}
        self.tags: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
        self.accepted: list[int] = []
        self.groups: list[int] = []
        self.fails: Exception | None = None
        self.open = threading.Event()  # cleared: writing hangs
        self.open.set()

    def _check(self) -> None:
        if self.fails is not None:
            raise self.fails

    def put(self, parts: Sequence[PostedPart]) -> list[str]:
        self.open.wait(10)
        self._check()
        self.groups.append(len(parts))
        words = []
        for part in parts:
            held = self.kept.setdefault(part.key, part)
            words.append("stored" if held is part else "same" if held.digest == part.digest else "conflict")
            self.aside += [part] if words[-1] == "conflict" else []
        return words

    def total(self, experiment: str) -> Any:
        return None  # nothing was added up yet

    def parts(self, experiment: str) -> list[tuple[int, PostedPart]]:
        return [(i, part) for i, part in enumerate(self.kept.values()) if part.key.experiment == experiment]

    def define(self, experiment: str, text: str, *, by: str, at: float) -> int:
        self._check()
        self.defined[experiment].append(text)
        self.defined_at[experiment].append(at)
        self.audited.append((experiment, f"defined version {len(self.defined[experiment])}", by))
        return len(self.defined[experiment])

    def definitions(self) -> dict[str, tuple[int, str]]:
        self._check()
        return {name: (len(texts), texts[-1]) for name, texts in self.defined.items()}

    def history(self, experiment: str) -> list[DefinitionVersion]:
        versions = zip(self.defined[experiment], self.defined_at[experiment], strict=True)
        return [DefinitionVersion(i, text, "test", at) for i, (text, at) in enumerate(versions, 1)]

    def conflicts(self, experiment: str) -> list[StoredPart]:
        found = [StoredPart(i, p.key, p.digest, p.received_at, "conflict") for i, p in enumerate(self.aside)]
        return [one for one in found if one.number not in self.accepted]

    def accept(self, experiment: str, number: int, *, by: str, at: float, reason: str = "") -> None:
        if number not in [one.number for one in self.conflicts(experiment)]:
            raise InvalidInputError(f"there is no conflict {number}")
        self.accepted.append(number)
        self.audited.append((experiment, f"accepted {number}", by))

    def reject(self, experiment: str, number: int, *, by: str, at: float, reason: str = "") -> None:
        self.accept(experiment, number, by=by, at=at)

    def add_audit(self, experiment: str, what: str, *, by: str, at: float) -> None:
        self.audited.append((experiment, what, by))

    def add_token(
        self, experiment: str, hashed: str, name: str, *, by: str, at: float, tags: Sequence[str] = ()
    ) -> None:
        self.hashes[experiment].append(Token(name, hashed))
        self.tags[experiment][name] = tuple(tags)

    def token_tags(self, experiment: str) -> dict[str, tuple[str, ...]]:
        return self.tags[experiment]

    def tokens(self, experiment: str) -> list[Token]:
        self._check()
        return list(self.hashes[experiment])

    def add_session(self, session: str, token: str, *, expires_at: float, now: float) -> None:
        self.sessions[session] = (token, expires_at)

    def find_session(self, session: str, now: float) -> str | None:
        self._check()
        token, expires_at = self.sessions.get(session, (None, 0.0))
        return token if now < expires_at else None

    def delete_session(self, session: str) -> None:
        self.sessions.pop(session, None)

    def check_write(self) -> None:
        self.open.wait(10)
        self._check()

    def revoke(self, experiment: str, name: str, *, by: str, at: float) -> None:
        self.hashes[experiment] = [t for t in self.hashes[experiment] if t.name != name]


class Board:
    """Notes what it is told; `told` is set by each change."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.told = threading.Event()
        self.ready = True

    def mark_changed(self, experiment: str) -> None:
        self.changes.append(experiment)
        self.told.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        pass


class World(NamedTuple):
    """A store with an experiment `rank` and its tokens, and what stands on it."""

    store: Store
    board: Board
    writer: str
    owner: str
    reader: str

    def counted(self) -> Any:
        """What the parts that are kept add up to."""
        return merge_parts([part.data for part in self.store.kept.values()])


def world(**definition: Any) -> World:
    store = Store()
    experiment = Experiment.from_dict({"id": "rank"} | DEFINITION | definition)
    store.define("rank", json.dumps(experiment.to_dict()), by="test", at=0.0)
    tokens = [
        issue_token(store, whose, name, by="test", at=0.0)
        for whose, name in (("rank", "job"), (OWNER, "ann"), (READER, "bob"))
    ]
    return World(store, Board(), *tokens)


def arms(
    seed: int = 0,
    *,
    metrics: Sequence[Any] | None = None,
    by: Sequence[str] = ("arm", "country"),
    keys: Sequence[Any] = ("A", "B"),
    countries: Sequence[Any] = ("br", "de"),
    rows: int = 60,
) -> sm.Sliced:
    """What a worker counted in an hour."""
    draw = np.random.default_rng(seed)
    columns = {"arm": draw.choice(np.array(keys), rows), "country": draw.choice(np.array(countries), rows)}
    held = sm.Sharded(list(metrics or [sm.CTR(), sm.AUC(bits=10)]), unit="user_id", shards=8)
    return sm.Sliced(held, by=list(by)).update(
        y_true=draw.integers(0, 2, rows),
        y_score=draw.random(rows).round(2),
        user_id=draw.integers(0, 30, rows),
        **{name: columns[name] for name in by},
    )
