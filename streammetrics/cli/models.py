"""The columns of a model: one of scores, one of lists, or several by a pattern such as `prob_a_*`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from streammetrics.cli.messages import UsageError

__all__ = ["Model", "find_model"]


class Model(NamedTuple):
    """A model as the log has it.

    Parameters
    ----------
    name : str
        What it is called in tables.
    column : str or tuple of str
        Where its scores are.
    width : int, optional
        How many a row has, where the log says so.
    """

    name: str
    column: str | tuple[str, ...]
    width: int | None = None


def find_model(given: str, schema: Any) -> Model:
    """Return the columns that are meant.

    Parameters
    ----------
    given : str
        A column, or a pattern of several; their order is that of the numbers in their names.
    schema : pyarrow.Schema, optional
        The columns there are; None where a pattern makes no sense.
    """
    names = [] if schema is None else list(schema.names)
    if given in names or not re.search(r"[*?]", given):
        return Model(given, given, _list_size(schema, given) if given in names else None)
    found = sorted((n for n in names if fnmatchcase(n, given)), key=_by_number)
    if not found:
        raise UsageError(f"no column is like {given!r}; there are {', '.join(names[:40])}")
    return Model(re.split(r"[*?]", given)[0].rstrip("_-. ") or given, tuple(found), len(found))


def _by_number(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _list_size(schema: Any, name: str) -> int | None:
    size = getattr(schema.field(name).type, "list_size", None)
    return size if isinstance(size, int) and size > 0 else None
