"""What the statistics counted when they were written, as digests: a value that changes is a change of the format.

`frozen.json` holds, for each test, what a state of its rows showed: by name the digest of the array or value, as the
core before this one had counted it. A test that fails says which names of which test differ. The rows are drawn by
`Generator.integers` and `Generator.random` and basic arithmetic alone, so they are the same everywhere.

New rows or a new meaning: FROZEN=write pytest tests/statistics/test_x.py writes the entries of the tests that ran
(without -n), and `git diff` shows which those are, a line each.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("frozen.json")


def plain(value: Any) -> Any:
    """The same without numpy, whose repr changes."""
    if isinstance(value, np.ndarray):
        return value.shape, plain(value.ravel().tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {name: plain(one) for name, one in sorted(value.items())}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def spelled(value: Any) -> bytes:
    """A value in bytes that are the same on every machine; numbers of an array in 8 bytes each."""
    value = np.asarray(value) if isinstance(value, np.generic) else value
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return repr(plain(value)).encode()
    real = value.dtype.kind == "f"
    made = np.where(np.isnan(value), np.nan, value).astype("<f8") if real else value.astype("<i8")
    return f"{'reals' if real else 'integers'} {value.shape} ".encode() + made.tobytes()


def digests(seen: tuple[dict[str, Any], ...]) -> dict[str, str]:
    """Of each name the digest of what it was in one view after the other."""
    made = {name: hashlib.sha256() for view in seen for name in view}
    for view in seen:
        for name, digest in made.items():
            digest.update(spelled(view[name]) if name in view else b"absent")
            digest.update(b"\n")
    return {name: made[name].hexdigest()[:16] for name in sorted(made)}


def key_of(what: str) -> str:
    """The test that runs, as pytest spells it, without folders."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    file, _, rest = test.partition("::")
    return f"{Path(file).stem}::{rest}{what and ' ' + what}"


def write(key: str, found: dict[str, str]) -> None:
    entries = json.loads(FILE.read_text()) if FILE.exists() else {}
    entries[key] = found
    lines = (f"{json.dumps(k)}:{json.dumps(entries[k], separators=(',', ':'))}" for k in sorted(entries))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check(*seen: dict[str, Any], what: str = "") -> None:
    """Compare what was seen with what is frozen under the name of this test."""
    key, found = key_of(what), digests(seen)
    if os.environ.get("FROZEN") == "write":
        write(key, found)
    held = json.loads(FILE.read_text()).get(key, {})
    differ = sorted(name for name in held.keys() | found.keys() if held.get(name) != found.get(name))
    assert not differ, f"{key}: not as frozen: {', '.join(differ)}"
