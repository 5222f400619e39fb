"""Later releases read the states of earlier ones, and compute the same values from them.

`releases/VERSION.zip` holds, for each release, a state of every metric and of every wrapper, the digests of the states and
of their values, and the frozen values (`frozen.json`). To add the file of a release, set its version and run
``python tests/test_releases.py`` before the full battery. A file that is there is never written again. If a release is
meant to change a value or refuse a state, name it in `CHANGES` with the sentence of the changelog.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import test_frozen
import test_saved_states

import streammetrics as sm

FOLDER = Path(__file__).with_name("releases")
INDEX, FROZEN = "index.json", "frozen.json"

CHANGES: dict[str, str] = {}
"""States and frozen values of earlier releases that have changed, by name: the sentence of the changelog about each."""


def describe(data: bytes) -> dict[str, str]:
    """Return digests of a state, of its union with itself, and of its value and bounds. Intervals may improve.

    A few metrics cannot be merged with themselves, such as the last rows of a stream. Their union is the error's name.
    """
    thing = sm.from_bytes(data)
    try:
        merged = sm.merge([data, data]).digest()
    except sm.StreamMetricsError as error:
        merged = type(error).__name__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = [test_saved_states.plain_or_name(getattr(thing, how, None)) for how in ("compute", "bounds")]
    shown = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]
    return {"digest": thing.digest(), "merged": merged, "values": shown}


def write_release(path: Path, names: Iterable[str] | None = None) -> None:
    """Write the states in `saved_states.zip` (all, or only those with these names), and the frozen values."""
    with zipfile.ZipFile(test_saved_states.FILE) as saved:
        states = {name: saved.read(name) for name in names or test_saved_states.INDEX}
    index = {name: describe(data) for name, data in states.items()}
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as made:
        for name, data in states.items():
            made.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        made.writestr(zipfile.ZipInfo(INDEX), json.dumps(index, indent=0), zipfile.ZIP_DEFLATED)
        made.writestr(zipfile.ZipInfo(FROZEN), test_frozen.FILE.read_text(), zipfile.ZIP_DEFLATED)


def find_changes(path: Path) -> list[str]:
    """Return the names of the states and of the frozen values of a release that this version changes."""
    with zipfile.ZipFile(path) as release:
        index, frozen = (json.loads(release.read(name)) for name in (INDEX, FROZEN))
        changed = [name for name, digests in index.items() if describe_or_name(release.read(name)) != digests]
    # `test_frozen` compares the values with the file of this version.
    known = json.loads(test_frozen.FILE.read_text())
    return changed + [name for name, digest in frozen.items() if known.get(name, digest) != digest]


def describe_or_name(data: bytes) -> Any:
    """Return the digests of a state; or the error that reading or merging it raises."""
    try:
        return describe(data)
    except sm.StreamMetricsError as error:
        return repr(error)


@pytest.mark.slow
def test_states_and_values_of_releases_stay() -> None:
    for path in sorted(FOLDER.glob("*.zip")):
        changed = set(find_changes(path)) - set(CHANGES)
        assert not changed, f"{path.stem} had other states or values: {sorted(changed)}"
    changelog = " ".join((FOLDER.parent.parent / "CHANGELOG.md").read_text().split())
    assert all(sentence in changelog for sentence in CHANGES.values())


def test_this_version_is_released_with_its_states() -> None:
    assert ".dev" in sm.__version__ or (FOLDER / f"{sm.__version__}.zip").exists(), (
        "write the states of this release: python tests/test_releases.py"
    )


@pytest.mark.cpu_limit(5)
def test_a_changed_state_and_a_changed_value_are_found(tmp_path: Path) -> None:
    names = ["auc", "ctr", "wrapper recent", "wrapper sliced"]
    write_release(tmp_path / "1.zip", names)
    assert find_changes(tmp_path / "1.zip") == []
    with pytest.raises(FileExistsError):
        write_release(tmp_path / "1.zip", names)
    shutil.unpack_archive(tmp_path / "1.zip", tmp_path / "release")
    for file, change in ((INDEX, "auc"), (FROZEN, repr(sm.CTR()))):
        content = json.loads((tmp_path / "release" / file).read_text())
        assert change in content
        content[change] = "another digest"
        (tmp_path / "release" / file).write_text(json.dumps(content))
    (tmp_path / "release" / "ctr").write_bytes(b"no state")
    shutil.make_archive(str(tmp_path / "2"), "zip", tmp_path / "release")
    assert find_changes(tmp_path / "2.zip") == ["auc", "ctr", repr(sm.CTR())]


if __name__ == "__main__":
    if ".dev" in sm.__version__:
        raise SystemExit(f"{sm.__version__} is no release: set __version__ in streammetrics/__init__.py first")
    FOLDER.mkdir(exist_ok=True)
    write_release(FOLDER / f"{sm.__version__}.zip")
    sys.stdout.write(f"{FOLDER / sm.__version__}.zip\n")
