"""What a worker raises, said in the driver as it was raised there: not as a page of Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from ... import errors

__all__ = ["said_plainly"]

RAISED = re.compile(r"^streammetrics\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def said_plainly() -> Iterator[None]:
    """Raise an error of this package that a worker raised; Spark's own one, with all traces, is its cause."""
    try:
        yield
    except PySparkException as error:
        found = RAISED.search(str(error))
        kind = getattr(errors, found[1], None) if found is not None else None
        if found is None or kind is None:
            raise
        raise kind(found[2]) from error
