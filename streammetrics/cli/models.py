"""The columns of a model: one of scores or of lists, or several by a pattern such as `score_*`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from streammetrics.cli.messages import UsageError

__all__ = ["LoggedModel", "find_model"]


class LoggedModel(NamedTuple):
    """A model as the log has it.

    Parameters
    ----------
    name : str
        What it is called in tables.
    column : str or tuple of str
        Where its scores are.
    """

    name: str
    column: str | tuple[str, ...]

    def width(self, schema: Any) -> int | None:
        """Return how many values a row has; None if only the rows tell."""
        if isinstance(self.column, tuple):
            return len(self.column)
        kind = schema.field(self.column).type if schema is not None and self.column in schema.names else None
        return getattr(kind, "list_size", None) if "fixed_size_list" in str(kind) else None

    def ordered(self, classes: Sequence[object]) -> LoggedModel:
        """Return the columns in the order of the classes, where they are called after them: `p_cat`, `p_dog`."""
        if isinstance(self.column, str):
            return self
        found = {str(c): [n for n in self.column if _is_called(n, str(c))] for c in classes}
        if not any(found.values()):
            return self
        for name, columns in found.items():
            if len(columns) != 1:
                several = f"{' and '.join(columns)} are" if columns else f"no column of {', '.join(self.column)} is"
                raise UsageError(f"{self.name}: {several} called after the class {name!r}, and others are after theirs")
        return LoggedModel(self.name, tuple(columns[0] for columns in found.values()))


def find_model(given: str, schema: Any) -> LoggedModel:
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
        return LoggedModel(given, given)
    found = sorted((n for n in names if fnmatchcase(n, given)), key=_by_number)
    if not found:
        raise UsageError(f"no column is like {given!r}; there are {', '.join(names[:40])}")
    return LoggedModel(re.split(r"[*?]", given)[0].rstrip("_-. ") or given, tuple(found))


def _is_called(column: str, name: str) -> bool:
    """Whether a column ends with the name of a class, as a word: `p_female` is not after "male"."""
    before = column[: -len(name)] if name and column.endswith(name) else None
    return before is not None and not (before[-1:].isalnum() and name[0].isalnum())


def _by_number(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
