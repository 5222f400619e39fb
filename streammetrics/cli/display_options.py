"""How results are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streammetrics.cli.comparison import Versus

__all__ = ["Shown"]


@dataclass(frozen=True)
class Shown:
    """How results are printed.

    Parameters
    ----------
    printed, top, sort, min_rows
        As the options of these names; `printed` is `--format`.
    confidence : float or None
        Of intervals; None for none.
    versus : list of Versus
        What is compared.
    """

    printed: str = "table"
    top: int = 40
    sort: str | None = None
    min_rows: int = 0
    confidence: float | None = None
    versus: Sequence[Versus] = ()
