"""Read TREC runs and relevance judgments, and convert them to rows for ranking metrics.

A run contains a line `query Q0 document rank score tag` for each returned document. Judgments (qrels) consist of lines
`query 0 document grade`. The rank is ignored: as in trec_eval, documents are ranked by descending score, and documents
with equal scores by descending name.
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
    """Read a run, and return the document scores for each query.

    Parameters
    ----------
    path : str or Path
        A text file, or a gzip file whose name ends in `.gz`. Words after the sixth in a line are ignored.

    Raises
    ------
    InvalidInputError
        A line is not in the run format, or a document occurs twice for a query. The message names the file and line.
    """
    return _read_table(path, "query Q0 document rank score tag", 5, 4)


def read_qrels(path: str | Path) -> dict[str, dict[str, float]]:
    """Read relevance judgments, and return the document grades for each query.

    Parameters
    ----------
    path : str or Path
        A text file, or a gzip file whose name ends in `.gz`.

    Raises
    ------
    InvalidInputError
        A line is not in the qrels format, or a document occurs twice for a query. The message names the file and line.
    """
    return _read_table(path, "query 0 document grade", 4, 3)


def _read_table(path: str | Path, form: str, words: int, number: int) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for at, line in _read_lines(Path(path)):
        parts = line.split()
        if not parts:
            continue
        where = f"{path}: line {at:,}"
        try:
            query, document, value = parts[0], parts[2], float(parts[number])
        except (IndexError, ValueError):
            raise InvalidInputError(
                f"{where}: expected `{form}`, found {line.strip()[:80]!r}; correct the line", row=at
            ) from None
        if len(parts) < words or value != value:
            raise InvalidInputError(
                f"{where}: expected `{form}`, found {line.strip()[:80]!r}; correct the line", row=at
            )
        documents = table.setdefault(query, {})
        if document in documents:
            raise InvalidInputError(
                f"{where}: document {document} occurs twice for query {query}; remove this line", row=at
            )
        documents[document] = value
    return table


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    open_text: Any = gzip.open if path.suffix == ".gz" else open
    # utf-8-sig skips a byte order mark, which would otherwise become part of the first query ID.
    with open_text(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
        yield from enumerate(file, 1)


def trec_rows(
    qrels: Qrels | str | Path, run: Run | str | Path, *, complete: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """Return a run and its relevance judgments as columns for the `update` method of ranking metrics.

    Parameters
    ----------
    qrels, run : mapping of query to mapping of document to grade or score, or path
        Mappings as in pytrec_eval, or files for `read_qrels` and `read_run`.
    complete : bool
        Whether judged queries that are missing from the run count as queries without results (as with `trec_eval -c`).

    Notes
    -----
    The conventions are those of trec_eval: queries without judgments are dropped; documents without a judgment, or with
    a negative grade, are not relevant; judged documents that are not returned count for recall and the ideal ranking;
    scores are float32. With `ties="document"`, metrics break ties as trec_eval does.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.io.trec import trec_rows
    >>> rows = trec_rows({"q1": {"a": 1, "b": 2}}, {"q1": {"a": 0.3, "c": 0.3}})
    >>> sm.MeanReciprocalRank(ties="document").update(rows).compute()
    0.5
    """
    judgements = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    documents = run if isinstance(run, Mapping) else read_run(run)
    rows: list[tuple[str, str, float, float, int]] = []
    for query, grades in judgements.items():
        scores = documents.get(query, {})
        if not scores and not complete:
            continue
        rows += [(query, d, max(grades.get(d, 0.0), 0.0), s, 1) for d, s in scores.items()]
        rows += [(query, d, max(g, 0.0), 0.0, 0) for d, g in grades.items() if d not in scores]
    names = ("query", "document", "y_true", "y_score", "retrieved")
    dtypes = (object, object, np.float64, np.float32, np.uint8)
    return {n: np.array([row[i] for row in rows], d) for i, (n, d) in enumerate(zip(names, dtypes, strict=True))}
