"""Convert Spark errors to one-line errors of this package, without the stack traces of the workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from ... import errors
from ...errors import MemoryLimitError, StreamMetricsError

__all__ = ["raise_worker_errors"]

OWN_ERROR = re.compile(r"^streammetrics\.errors\.(\w+): (.+)$", re.MULTILINE)
MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(streammetrics|numpy|numba|pyarrow|pandas)[.']")
OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([\d.]+\d)")
TOO_LARGE = re.compile(r"results of .*\((.+)\) is bigger than \S*maxResultSize")


@contextmanager
def raise_worker_errors() -> Iterator[None]:
    """Convert a Spark error to an error of this package if Spark's message reveals a known cause.

    The Spark error becomes the cause of the new error.
    """
    try:
        yield
    except PySparkException as error:
        explained = _explain(str(error))
        if explained is None:
            raise
        raise explained from error


def _explain(text: str) -> StreamMetricsError | None:
    """Return an error of this package for a Spark error message; None if the message has no known form."""
    if match := OWN_ERROR.search(text):
        kind = getattr(errors, match[1], None)
        return None if kind is None else kind(match[2])
    if match := OTHER_PYTHON.search(text):
        return StreamMetricsError(
            f"the workers of Spark run Python {match[1]}, and the driver runs Python {match[2]}; set PYSPARK_PYTHON to a "
            f"Python {match[2]} that all workers have"
        )
    if match := MISSING_MODULE.search(text):
        return StreamMetricsError(
            f"the Python of Spark's workers has no module {match[1]!r}; install streammetrics[spark] on all workers, or "
            f"set PYSPARK_PYTHON to a Python that has it"
        )
    if match := TOO_LARGE.search(text):
        return MemoryLimitError(
            f"the states of all slices take more than {match[1]}, which Spark refuses to send to the driver; raise "
            f"spark.driver.maxResultSize, or use fewer slices or fewer bits (such as AUC(bits=12))"
        )
    return None
