"""Load covariates: metrics of the same arms from before the treatment, which make intervals narrower (CUPED)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.cli.user_split import separate_users
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric_like import MetricLike
from streammetrics.collect.serialization import load
from streammetrics.collect.task import Task
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.metrics.values.totals import Mean
from streammetrics.numerics.slice_keys import format_atom
from streammetrics.reports.records import merge_cells, split_pieces

__all__ = ["load_arm_covariates", "load_side_covariates"]

Covariates = tuple[Mapping[str, MetricLike], ...]
# A table of users should have one row for each user. Allow 1 % more rows: the number of users may be an estimate.
MOST_ROWS = 1.01


def load_side_covariates(values: Iterable[str], sides: Sequence[str], max_bytes: int) -> Covariates:
    """Load the covariates for `compare`; each value of --covariate lists one file per side, in the order of `sides`."""
    covariates = []
    for value in values:
        files = value.split(",")
        if len(files) != len(sides):
            raise UsageError(
                f"--covariate {value}: expected {len(sides)} files, one for each of {', '.join(sides)} in this order, "
                f"found {len(files)}; separate the files by commas"
            )
        pieces = [_load_pieces(file, max_bytes) for file in files]
        covariates.append({side: merge_cells(piece[0]) for side, piece in zip(sides, pieces, strict=True)})
    return tuple(covariates)


def load_arm_covariates(
    values: Iterable[str],
    metrics: Sharded,
    arm: str,
    *,
    exposures: str | None,
    users: Sliced | None,
    columns: Collection[str],
    max_bytes: int,
) -> Covariates:
    """Load the covariates for `eval`. Each covariate is a dict that maps arms to metrics.

    Parameters
    ----------
    values : iterable of str
        The values of --covariate: files of saved states by arm, or columns of the table of exposures.
    metrics : Sharded
        The metrics of the log. The covariates must have the same units and shards.
    arm : str
        The column of the arms.
    exposures : str or None
        The path of the table of exposures, which lists the users of each arm.
    users : Sliced or None
        The users in the table of exposures, sliced by arm.
    columns : collection of str
        The columns of the log.
    max_bytes : int
        The maximum size of a decompressed file.
    """
    covariates = []
    for value in values:
        if os.path.exists(value):
            pieces = [p for p in _load_pieces(value, max_bytes) if isinstance(p, Sliced) and p.by == (arm,)]
            if not pieces:
                raise UsageError(
                    f"--covariate {value}: expected metrics by {arm}, found none; score the log of the time before the "
                    f"treatment with --arm {arm}, --unit {metrics.unit} and --save"
                )
            sliced = pieces[0]
        elif exposures is None or users is None:
            found = "a column of the log" if value in columns else "neither"
            raise UsageError(
                f"--covariate {value}: expected a file of saved states, or a column of --exposures, found {found}; add "
                f"--exposures FILE, a table with one row for each user and this column. The log itself may have more rows "
                f"of a user because of the treatment"
            )
        else:
            sliced = _count_column(exposures, value, metrics, arm, users)
        covariates.append({format_atom(key): sliced[key] for key in sliced.keys if key is not None})
    return tuple(covariates)


def _load_pieces(file: str, max_bytes: int) -> list[Any]:
    content, _, _ = separate_users(load(file, max_bytes=max_bytes))
    return [piece for _, piece in split_pieces(content)]


def _count_column(path: str, column: str, metrics: Sharded, arm: str, users: Sliced) -> Sliced:
    """Return the mean, by arm, of a column in the table of exposures; raise UsageError if users have several rows.

    A user with several rows would carry more weight than the others.
    """
    from streammetrics.io.evaluate import evaluate
    from streammetrics.io.logs import Log

    log = Log([path])
    if column not in log.schema.names:
        raise UsageError(
            f"--covariate {column}: there is no such file, and no such column in {path}; its columns are "
            f"{', '.join(log.schema.names)}"
        )
    how = definition_of(metrics).units.kind
    mean = MetricCollection({column: Task(Mean(), value=column)}, on_invalid=definition_of(metrics).on_invalid)
    options: dict[str, Any] = {"missing": how.missing, "missing_values": how.missing_values}
    empty = Sharded(mean, unit=metrics.unit, shards=metrics.shards, **options)
    counted = evaluate(log, empty, [(arm,)]).slices[(arm,)]
    rows = sum(r["rows"] for r in counted.table_records() if r[arm] is not None)
    distinct = sum(r["value"] for r in users.table_records() if r[arm] is not None)
    if rows > MOST_ROWS * distinct:
        raise UsageError(
            f"--covariate {column}: expected one row for each user in {path}, found {rows:,} rows of {distinct:,.0f} "
            f"users; remove repeated rows, so that every user counts once"
        )
    return counted
