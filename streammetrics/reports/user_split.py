"""Show the split of users between the arms of an experiment, on the terminal, on pages and in JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..inference.sample_ratio import SampleRatio
from ..numerics.slice_keys import format_atom
from .text_table import Cell, Grid

__all__ = ["UserSplit"]

EXPOSED = "these are the users in the exposures, whether or not they have rows in the log"
RETURNING = (
    "these are the users with rows in this log, so a treatment that changes who returns can change the shares and raise "
    "an alarm"
)


@dataclass(frozen=True)
class UserSplit:
    """The number of users in each arm of an experiment.

    Parameters
    ----------
    ratio : SampleRatio
        The number of users in each arm, and the result of the test that compares their shares with the planned shares
        or, if none are known, with equal shares.
    is_tested : bool
        Whether the planned shares are known. If not, `describe_test` asks for them, and mentions the test result only
        if there is an alarm, that is, if the shares are not equal.
    exposed : bool or None
        Whether the users were counted from exposures (--exposures) rather than from the log; None if unknown.
    """

    ratio: SampleRatio
    is_tested: bool
    exposed: bool | None = None

    @property
    def total(self) -> float:
        """The number of users in all arms together."""
        return math.fsum(self.ratio.users.values())

    @property
    def heads(self) -> list[str]:
        """The column headings for the texts of `describe_arms`."""
        return ["users", "share", "99 % interval", *(["planned"] if self.is_tested else [])]

    def describe_arms(self) -> dict[str, list[str]]:
        """Return, for each arm, the number of users, their share, its interval, and the planned share as texts."""
        ratio = self.ratio
        texts = {}
        for arm, share in ratio.shares.items():
            low, high = ratio.intervals[arm]
            planned = [f"{100.0 * ratio.planned[arm]:.2f} %"] if self.is_tested else []
            interval = f"{100.0 * low:.2f} % to {100.0 * high:.2f} %"
            texts[format_atom(arm)] = [f"{ratio.users[arm]:,.0f}", f"{100.0 * share:.2f} %", interval, *planned]
        return texts

    def build_grid(self) -> Grid:
        """Return a table with the number of users in each arm and their share."""
        rows: list[list[Cell] | None] = [[Cell(arm), *map(Cell, texts)] for arm, texts in self.describe_arms().items()]
        title = f"users by arm: {self.total:,.0f} users so far"
        return Grid(title, ["arm", *self.heads], rows, remarks=self.list_remarks())

    def list_remarks(self) -> list[str]:
        """Return remarks about the test result, and about limitations of the user counts, such as sampling."""
        ratio = self.ratio
        remarks = [self.describe_test()]
        if ratio.share < 1.0:
            kept = math.fsum(ratio.users.values()) * ratio.share
            remarks.append(
                f"estimated from a sample of {100.0 * ratio.share:.2g} % of the users; only these {kept:,.0f} users are "
                f"tested, and the smallest mismatch that they most likely show is "
                f"{100.0 * ratio.smallest_mismatch:.2g} percentage points"
            )
        if ratio.several:
            remarks.append(f"{ratio.several:,.0f} users are in more than one arm, and count in none")
        if self.exposed is not None:
            remarks.append(EXPOSED if self.exposed else RETURNING)
        return remarks

    def describe_test(self) -> str:
        """Return a text that says whether users are split as planned, or that asks for the planned shares."""
        ratio = self.ratio
        if not self.is_tested:
            example = ",".join(f"{arm}={100.0 / len(ratio.users):.3g}" for arm in ratio.users)
            found = "the shares are not equal" if ratio.alarm else "the shares are not tested"
            return f"{found}; give the planned shares to test them, such as --shares {example}"
        if ratio.alarm:
            return f"users are not split as planned ({ratio.evidence}): do not trust any difference"
        if ratio.is_as_planned:
            return f"users are split as planned ({ratio.evidence})"
        return f"too few users to tell whether they are split as planned ({ratio.evidence})"

    def list_records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each arm: its users, its share, and the test result, which is the same for all arms."""
        ratio = self.ratio
        test = {
            "alarm": ratio.alarm if self.is_tested else None,
            "p_value": ratio.p_value if self.is_tested else None,
            "e_value": ratio.e_value if self.is_tested and ratio.p_value is None else None,
        }
        sample = {"several": ratio.several, "sampled": ratio.share, "smallest_mismatch": ratio.smallest_mismatch}
        for arm, share in ratio.shares.items():
            low, high = ratio.intervals[arm]
            planned = ratio.planned[arm] if self.is_tested else None
            shares = {"share": share, "share_low": low, "share_high": high, "planned": planned}
            yield {"arm": arm, "users": ratio.users[arm]} | shares | test | sample
