"""The split of users between the arms of an experiment: count, test and show it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.task import Task
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.inference.sample_ratio import SampleRatio, sample_ratio_mismatch
from streammetrics.io.slice_plan import USERS
from streammetrics.metrics.values.distinct import DistinctSample
from streammetrics.numerics.slice_keys import format_atom
from streammetrics.reports.text_table import Cell, Grid

__all__ = [
    "UserSplit",
    "add_users",
    "build_user_counter",
    "build_user_split",
    "count_exposures",
    "parse_shares",
    "separate_users",
]

EXPOSURES = "exposures"
"""The name of the users by arm in a saved file if they were counted from exposures rather than from the log."""

USER_LIMIT = 1 << 19
"""The largest number of users of an arm that are counted exactly. Beyond it, a sample of users is kept."""
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
        The users by arm, and the test of their shares: against the planned shares, or else against equal shares.
    is_tested : bool
        Whether the user stated the planned shares. Otherwise the test only decides whether to ask for them.
    exposed : bool
        Whether the users were counted from exposures (--exposures) rather than from the log.
    """

    ratio: SampleRatio
    is_tested: bool
    exposed: bool

    def build_grid(self) -> Grid:
        """Return a table of the users and the share of each arm."""
        ratio = self.ratio
        rows: list[list[Cell] | None] = []
        for arm, share in ratio.shares.items():
            low, high = ratio.intervals[arm]
            planned = [Cell(f"{100.0 * ratio.planned[arm]:.2f} %")] if self.is_tested else []
            interval = f"{100.0 * low:.2f} % to {100.0 * high:.2f} %"
            rows.append(
                [Cell(arm), Cell(f"{ratio.users[arm]:,.0f}"), Cell(f"{100.0 * share:.2f} %"), Cell(interval), *planned]
            )
        heads = ["arm", "users", "share", "99 % interval", *(["planned"] if self.is_tested else [])]
        return Grid("users by arm", heads, rows, remarks=self.list_remarks())

    def list_remarks(self) -> list[str]:
        """Return the result of the test, and what the numbers of users do not show."""
        ratio = self.ratio
        remarks = [self._describe_test()]
        if ratio.share < 1.0:
            kept = math.fsum(ratio.users.values()) * ratio.share
            remarks.append(
                f"estimated from a sample of {100.0 * ratio.share:.2g} % of the users; only these {kept:,.0f} users are "
                f"tested, and the smallest mismatch that they most likely show is "
                f"{100.0 * ratio.smallest_mismatch:.2g} percentage points"
            )
        if ratio.several:
            remarks.append(f"{ratio.several:,.0f} users are in more than one arm, and count in none")
        return [*remarks, EXPOSED if self.exposed else RETURNING]

    def _describe_test(self) -> str:
        ratio = self.ratio
        if not self.is_tested:
            example = ",".join(f"{arm}={100.0 / len(ratio.users):.3g}" for arm in ratio.users)
            found = "the shares are far from equal" if ratio.alarm else "the shares are not tested"
            return f"{found}; give the planned shares to test them, such as --shares {example}"
        if ratio.alarm:
            return f"users are not split as planned ({ratio.evidence}): do not trust any difference"
        if ratio.is_as_planned:
            return f"users are split as planned ({ratio.evidence})"
        return f"too few users to tell whether they are split as planned ({ratio.evidence})"

    def list_records(self) -> Iterator[dict[str, Any]]:
        """Yield a record of the users in each arm, and of the test, which is the same in all records."""
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


def build_user_counter(metrics: Any, arm: str | None) -> Sliced | None:
    """Return an empty count of the distinct units of `metrics`, such as users, by arm; None without arms or units.

    The count keeps the hashes of unit IDs, so units that occur in several rows, files or arms are recognized, even after a
    merge.
    """
    if arm is None or not isinstance(metrics, Sharded):
        return None
    how = definition_of(metrics).units.kind
    sample = DistinctSample(limit=USER_LIMIT, missing=how.missing, missing_values=how.missing_values)
    return Sliced(MetricCollection({USERS: Task(sample, value=metrics.unit)}), by=arm)


def count_exposures(path: str, counter: Sliced | None, threads: int | None) -> Sliced:
    """Return the users by arm in a log of exposures. `counter` is the empty count, which names the columns."""
    from streammetrics.io.evaluate import evaluate
    from streammetrics.io.logs import Log

    assert counter is not None
    return evaluate(Log([path]), counter.inner, [counter.by], threads=threads).slices[counter.by]


def build_user_split(
    users: Sliced, shares: Mapping[str, float], *, exposed: bool, sequential: bool
) -> UserSplit | None:
    """Return the users of each arm, and the test of their shares; None if fewer than two arms have rows.

    Parameters
    ----------
    users : Sliced
        A `DistinctSample` of the users, sliced by arm. Users without an arm are excluded.
    shares : dict of str to float
        The planned share of each arm; empty if the user did not state them.
    exposed : bool
        Whether the users were counted from exposures rather than from the log.
    sequential : bool
        Whether the test is valid at repeated looks.

    Raises
    ------
    UsageError
        An arm has no planned share.
    """
    arms = {key: format_atom(key) for key in users.keys if key is not None}
    # The user may spell a boolean arm in any case, such as true or True.
    spellings = {name.lower(): name for key, name in arms.items() if isinstance(key, bool)}
    shares = {spellings.get(name.lower(), name): share for name, share in shares.items()}
    if shares and (unplanned := [name for name in arms.values() if name not in shares]):
        raise UsageError(
            f"--shares: expected the planned share of every arm, found none of {', '.join(unplanned)}; the arms of the "
            f"log are {', '.join(arms.values())}"
        )
    absent = {name: share for name, share in shares.items() if name not in arms.values()}
    planned = {key: shares.get(name, 1.0) for key, name in arms.items()} | absent
    if len(planned) < 2:
        return None
    ratio = sample_ratio_mismatch(users.select(arms), planned, sequential=sequential)
    named = ratio._replace(
        users={format_atom(key): count for key, count in ratio.users.items()},
        planned={format_atom(key): share for key, share in ratio.planned.items()},
    )
    return UserSplit(named, bool(shares), exposed)


def add_users(results: Any, users: Sliced | None, exposed: bool) -> Any:
    """Return the results of a pass with the users by arm, as `--save` writes them."""
    return results if users is None else Bundle({**results, EXPOSURES if exposed else USERS: users})


def separate_users(content: Any) -> tuple[Any, Sliced | None, bool]:
    """Return the content of a saved file without the users by arm, the users by arm, and whether these are exposures.

    The users are None if the file has none.
    """
    name = next((one for one in (USERS, EXPOSURES) if isinstance(content, Bundle) and one in content), None)
    if name is None:
        return content, None, False
    rest = Bundle({other: one for other, one in content.items() if other != name})
    return rest, content[name], name == EXPOSURES


def parse_shares(texts: Iterable[str]) -> dict[str, float]:
    """Parse the values of --shares, such as `old=90,new=10`, as a dict of arms to planned shares."""
    shares: dict[str, float] = {}
    text = ",".join(texts)
    for one in text.split(",") if text else ():
        name, equals, share = (part.strip() for part in one.rpartition("="))
        try:
            if not equals or name in shares:
                raise ValueError
            shares[name] = float(share)
        except ValueError:
            raise UsageError(f"--shares {text}: expected ARM=SHARE for each arm, such as old=50,new=50") from None
        if not 0.0 < shares[name] < math.inf:
            raise UsageError(
                f"--shares {text}: expected shares above 0, found {share}; leave out arms that get no users"
            )
    if len(shares) == 1:
        raise UsageError(f"--shares {text}: expected the shares of at least two arms, such as old=50,new=50")
    return shares
