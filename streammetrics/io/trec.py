"""Files of TREC: runs, judgements, and both as the rows that ranking metrics count.

A run has a line for each document returned, `query Q0 document rank score tag`; judgements (qrels) have
`query 0 document grade`. The rank is not read: documents rank by score, equal scores by name, descending.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streammetrics.errors import InvalidInputError

__all__ = ["read_qrels", "read_run", "trec_rows"]

Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, float]]


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    """Read a run: the score of each document by query.

    Parameters
    ----------
    path : str or Path
        A text file, or one compressed with gzip that ends in `.gz`. What follows the sixth word of a line is ignored.

    Raises
    ------
    InvalidInputError
        A line is not one of a run, or a query has a document twice; the message names file and line.
    """
    return _read(path, "query Q0 document rank score tag", 5, 4)


def read_qrels(path: str | Path) -> dict[str, dict[str, float]]:
    """Read judgements: the grade of each document by query.

    Parameters
    ----------
    path : str or Path
        A text file, or one compressed with gzip that ends in `.gz`.

    Raises
    ------
    InvalidInputError
        A line is not one of judgements, or a query has a document twice; the message names file and line.
    """
    return _read(path, "query 0 document grade", 4, 3)


def _read(path: str | Path, form: str, words: int, number: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for at, line in _lines(Path(path)):
        parts = line.split()
        if not parts:
            continue
        try:
            query, document, value = parts[0], parts[2], float(parts[number])
        except (IndexError, ValueError):
            raise InvalidInputError(f"{path}: line {at:,} is not `{form}`: {line.strip()[:80]!r}", row=at) from None
        if len(parts) < words or value != value:
            raise InvalidInputError(f"{path}: line {at:,} is not `{form}`: {line.strip()[:80]!r}", row=at)
        documents = found.setdefault(query, {})
        if document in documents:
            raise InvalidInputError(f"{path}: line {at:,}: query {query} has document {document} twice", row=at)
        documents[document] = value
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    # A byte order mark is no part of the first query, whose judgements and documents would otherwise not meet.
    with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
        yield from enumerate(file, 1)


def trec_rows(
    qrels: Qrels | str | Path, run: Run | str | Path, *, complete: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """Return a run and its judgements as columns for the `update` of ranking metrics.

    Parameters
    ----------
    qrels, run : mapping of query to mapping of document to grade or score, or path
        As pytrec_eval has them; or files for `read_qrels` and `read_run`.
    complete : bool
        Whether judged queries of which the run has nothing count (as trec_eval -c), with nothing returned.

    Notes
    -----
    As trec_eval: queries that are not judged are left out; documents that are not judged, or have a negative grade, are
    not relevant; those judged and not returned count for recall and the ideal ranking; scores are float32. With
    `ties="document"` metrics rank as it does.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.io.trec import trec_rows
    >>> rows = trec_rows({"q1": {"a": 1, "b": 2}}, {"q1": {"a": 0.3, "c": 0.3}})
    >>> sm.MeanReciprocalRank(ties="document").update(rows).compute()
    0.5
    """
    judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    returned = run if isinstance(run, Mapping) else read_run(run)
    rows: list[tuple[str, str, float, float, int]] = []
    for query, grades in judged.items():
        scores = returned.get(query, {})
        if not scores and not complete:
            continue
        rows += [(query, d, max(grades.get(d, 0.0), 0.0), s, 1) for d, s in scores.items()]
        rows += [(query, d, max(g, 0.0), 0.0, 0) for d, g in grades.items() if d not in scores]
    names = ("query", "document", "y_true", "y_score", "retrieved")
    dtypes = (object, object, np.float64, np.float32, np.uint8)
    return {n: np.array([row[i] for row in rows], d) for i, (n, d) in enumerate(zip(names, dtypes, strict=True))}
