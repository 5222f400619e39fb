"""Options for displaying results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streammetrics.cli.comparison import SideComparison
from streammetrics.reports.user_split import UserSplit

__all__ = ["DisplayOptions"]


@dataclass(frozen=True)
class DisplayOptions:
    """The options that determine how results are displayed.

    Parameters
    ----------
    output_format, top, sort, min_rows
        The command-line options with the same names; `output_format` is `--format`.
    confidence : float or None
        The confidence level of intervals; None for no intervals.
    comparisons : list of SideComparison
        The comparisons to show.
    users : UserSplit or None
        The number of users in each arm; None if there are no arms, or no column of units.
    """

    output_format: str = "table"
    top: int = 40
    sort: str | None = None
    min_rows: int = 0
    confidence: float | None = None
    comparisons: Sequence[SideComparison] = ()
    users: UserSplit | None = None
