"""Canonical JSON, in which equal values have the same text. It is used for the headers and digests of states."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["canonical_json"]


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value, with sorted keys, no spaces and only ASCII characters."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
