"""A log of searches to try rankings on: graded documents, two rankers, and what a perfect metric would say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streammetrics.io.demo import write_parquet
from streammetrics.io.sources import LogError, PathLike

__all__ = ["SearchTruth", "write_search_log"]

_FEWEST, _MOST = 5, 40  # documents of a query
_GRADES = (0.3, 1.1, 1.8, 2.4)  # of the latent relevance: where grades 1 to 4 begin
_NOISE = {"score_a": 1.2, "score_b": 0.6}  # what a ranker does not know: b ranks better
_MARKETS = ["US", "DE", "JP", "BR"]
_CUT = 10
_SEARCH = 3  # random stream

_SCHEMA = pa.schema(
    [
        ("query_id", pa.int64()),
        ("doc_id", pa.int64()),
        ("market", pa.string()),
        ("score_a", pa.float32()),
        ("score_b", pa.float32()),
        ("grade", pa.int8()),
    ]
)


@dataclass(frozen=True)
class SearchTruth:
    """What is true of a log of searches, computed beside it from sorted arrays.

    Attributes
    ----------
    rows, queries : int
        Documents, and searches.
    ndcg : mapping of str to float
        NDCG@10 with linear gain of `score_a` and `score_b`; 0 for a query without a relevant document.
    mrr : mapping of str to float
        Mean reciprocal rank of the first relevant document among the 10 best.
    """

    rows: int
    queries: int
    ndcg: Mapping[str, float]
    mrr: Mapping[str, float]


def write_search_log(folder: PathLike, queries: int = 10_000, seed: int = 7) -> SearchTruth:
    """Write a log of searches as `folder/part-0.parquet`: a row for each document, those of a query side by side.

    Parameters
    ----------
    folder : path
        A folder that is empty or not there yet.
    queries : int
        How many searches; each has 5 to 40 documents, graded 0 to 4.
    seed : int
        The same seed gives the same rows on the same machine and numpy.

    Returns
    -------
    SearchTruth
        What the metrics must say of it.

    Raises
    ------
    LogError
        The folder holds files already.
    """
    root = Path(folder)
    if root.is_dir() and any(root.iterdir()):
        raise LogError(f"{root}: is not empty; the log of searches needs a folder of its own")
    rng = np.random.default_rng([seed, _SEARCH])
    sizes = rng.integers(_FEWEST, _MOST + 1, queries)
    query = np.repeat(np.arange(queries), sizes)
    hard = rng.normal(0, 0.5, queries)[query]  # queries differ in how much there is to find
    latent = rng.normal(0, 1, len(query)) - hard
    grade = np.searchsorted(_GRADES, latent).astype(np.int8)
    scores = {name: (latent + rng.normal(0, noise, len(query))).astype(np.float32) for name, noise in _NOISE.items()}
    columns = {
        "query_id": query + 1_000_000,
        "doc_id": rng.integers(0, 1 << 40, len(query)),
        "market": pa.array(_MARKETS).take(pa.array(rng.integers(0, len(_MARKETS), queries)[query])),
        **scores,
        "grade": grade,
    }
    table = pa.table([pa.array(columns[f.name], f.type) for f in _SCHEMA], schema=_SCHEMA)
    write_parquet(root / "part-0.parquet", _SCHEMA, [table])
    found = {name: _measured(query, grade, score) for name, score in scores.items()}
    ndcg, mrr = ({name: pair[i] for name, pair in found.items()} for i in range(2))
    return SearchTruth(len(query), queries, ndcg, mrr)


def _measured(
    query: npt.NDArray[np.int64], grade: npt.NDArray[np.int8], score: npt.NDArray[np.float32]
) -> tuple[float, float]:
    """NDCG@10 and MRR@10 by sorting: no two scores of a query are equal."""
    queries = int(query[-1]) + 1
    starts = np.searchsorted(query, np.arange(queries))
    rank = np.arange(len(query)) - starts[query]

    def ranked(by: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """The grade at each place, best scores first; 0 beyond the cut."""
        order = np.lexsort([-by.astype(np.float64), query])
        return np.where(rank < _CUT, grade[order].astype(np.float64), 0.0)

    def dcg(by: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        return np.bincount(query, ranked(by) / np.log2(rank + 2), queries).astype(np.float64)

    ideal = dcg(grade)
    ndcg = np.divide(dcg(score), ideal, out=np.zeros(queries), where=ideal > 0)
    gain = ranked(score)
    first = np.full(queries, np.inf)
    np.minimum.at(first, query[gain > 0], rank[gain > 0] + 1.0)
    return float(ndcg.mean()), float((1 / first).mean())
