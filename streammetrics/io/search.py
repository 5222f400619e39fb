"""Write a simulated search log of graded documents with the scores of two rankers; compute the true metric values."""

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

# The smallest and largest numbers of documents per query.
_MIN_DOCUMENTS, _MAX_DOCUMENTS = 5, 40
# Bounds on the latent relevance: up to 0.3, a document has grade 0; above 0.3, grade 1; above 1.1, grade 2; and so on.
_GRADE_STARTS = (0.3, 1.1, 1.8, 2.4)
# Standard deviation of the noise in the scores. Ranker b has less noise, so it ranks better.
_NOISE = {"score_a": 1.2, "score_b": 0.6}
_MARKETS = ["US", "DE", "JP", "BR"]
_CUTOFF = 10
_RANDOM_STREAM = 3

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
    """True metric values of a search log, computed from sorted arrays rather than by the metrics of this library.

    Attributes
    ----------
    rows, queries : int
        The numbers of documents and queries.
    ndcg : mapping of str to float
        NDCG@10 of `score_a` and `score_b`, with linear gain. A query without a relevant document counts as 0.
    mrr : mapping of str to float
        Mean reciprocal rank of the first relevant document, for `score_a` and `score_b`. A query without a relevant
        document among the 10 best counts as 0.
    """

    rows: int
    queries: int
    ndcg: Mapping[str, float]
    mrr: Mapping[str, float]


def write_search_log(folder: PathLike, queries: int = 10_000, seed: int = 7) -> SearchTruth:
    """Write a search log as `folder/part-0.parquet`. It contains one row per document, grouped by query.

    Parameters
    ----------
    folder : path
        A folder that is empty or does not exist yet.
    queries : int
        The number of queries. Each query has 5 to 40 documents with grades from 0 to 4.
    seed : int
        The same seed gives the same rows on the same machine with the same version of numpy.

    Returns
    -------
    SearchTruth
        The true values of the metrics.

    Raises
    ------
    LogError
        The folder already contains files.
    """
    root = Path(folder)
    if root.is_dir() and any(root.iterdir()):
        raise LogError(f"{root}: the folder is not empty; choose a new or empty folder for the log of searches")
    rng = np.random.default_rng([seed, _RANDOM_STREAM])
    sizes = rng.integers(_MIN_DOCUMENTS, _MAX_DOCUMENTS + 1, queries)
    query = np.repeat(np.arange(queries), sizes)
    # In a hard query, fewer documents are relevant.
    hard = rng.normal(0, 0.5, queries)[query]
    latent = rng.normal(0, 1, len(query)) - hard
    grade = np.searchsorted(_GRADE_STARTS, latent).astype(np.int8)
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
    measures = {name: _compute_ndcg_and_mrr(query, grade, score) for name, score in scores.items()}
    ndcg, mrr = ({name: pair[i] for name, pair in measures.items()} for i in range(2))
    return SearchTruth(len(query), queries, ndcg, mrr)


def _compute_ndcg_and_mrr(
    query: npt.NDArray[np.int64], grade: npt.NDArray[np.int8], score: npt.NDArray[np.float32]
) -> tuple[float, float]:
    """Return NDCG@10 and MRR@10, averaged over all queries. Scores within a query must be distinct."""
    queries = int(query[-1]) + 1
    starts = np.searchsorted(query, np.arange(queries))
    rank = np.arange(len(query)) - starts[query]

    def grades_by_rank(by: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """Return the grades of all rows, sorted by query and then by descending `by`, with 0 beyond the cutoff rank."""
        order = np.lexsort([-by.astype(np.float64), query])
        return np.where(rank < _CUTOFF, grade[order].astype(np.float64), 0.0)

    def dcg(by: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        return np.bincount(query, grades_by_rank(by) / np.log2(rank + 2), queries).astype(np.float64)

    ideal = dcg(grade)
    ndcg = np.divide(dcg(score), ideal, out=np.zeros(queries), where=ideal > 0)
    gain = grades_by_rank(score)
    first = np.full(queries, np.inf)
    np.minimum.at(first, query[gain > 0], rank[gain > 0] + 1.0)
    return float(ndcg.mean()), float((1 / first).mean())
