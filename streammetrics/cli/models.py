"""Find the columns that contain a model's scores.

A model has either one column, of numbers or lists, or several columns that match a pattern such as `score_*`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from streammetrics.cli.messages import UsageError

__all__ = ["LoggedModel", "find_model"]


class LoggedModel(NamedTuple):
    """A model whose scores are in the log.

    Parameters
    ----------
    name : str
        The model's name in tables.
    column : str or tuple of str
        The column or columns that contain its scores.
    """

    name: str
    column: str | tuple[str, ...]

    def count_outputs(self, schema: Any) -> int | None:
        """Return the number of scores in each row: the number of columns, or the length of the lists.

        Return None for a single column unless the schema says that it contains lists of a fixed length.
        """
        if isinstance(self.column, tuple):
            return len(self.column)
        kind = schema.field(self.column).type if schema is not None and self.column in schema.names else None
        return getattr(kind, "list_size", None) if "fixed_size_list" in str(kind) else None

    def order_by_class(self, classes: Sequence[object]) -> LoggedModel:
        """Return the model with its columns in the order of `classes`.

        A column belongs to a class if its name ends with the name of the class, as `p_cat` ends with `cat`. If no
        column belongs to a class, the order is unchanged. Otherwise, UsageError is raised unless each class has exactly
        one column.
        """
        if isinstance(self.column, str):
            return self
        columns_by_class = {str(c): [n for n in self.column if _ends_with_class(n, str(c))] for c in classes}
        if not any(columns_by_class.values()):
            return self
        for name, columns in columns_by_class.items():
            if len(columns) != 1:
                found = " and ".join(columns) or f"none among {', '.join(self.column)}"
                raise UsageError(
                    f"{self.name}: expected one column whose name ends with the class {name!r}, found {found}; name each "
                    f"column after its class"
                )
        return LoggedModel(self.name, tuple(columns[0] for columns in columns_by_class.values()))


def find_model(pattern: str, schema: Any) -> LoggedModel:
    """Return the model whose scores are in one column, or in all columns that match a pattern.

    Parameters
    ----------
    pattern : str
        The name of a column, or a pattern that matches several columns. Matching columns are sorted by the numbers in
        their names.
    schema : pyarrow.Schema, optional
        The columns of the log; None if patterns are not allowed.
    """
    names = [] if schema is None else list(schema.names)
    if pattern in names or not re.search(r"[*?]", pattern):
        return LoggedModel(pattern, pattern)
    matches = sorted((n for n in names if fnmatchcase(n, pattern)), key=_number_key)
    if not matches:
        raise UsageError(f"no column matches {pattern!r}; the columns are {', '.join(names[:40])}")
    return LoggedModel(re.split(r"[*?]", pattern)[0].rstrip("_-. ") or pattern, tuple(matches))


def _ends_with_class(column: str, name: str) -> bool:
    """Return whether a column name ends with a class name as a separate word: `p_female` does not end with "male"."""
    before = column[: -len(name)] if name and column.endswith(name) else None
    return before is not None and not (before[-1:].isalnum() and name[0].isalnum())


def _number_key(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
