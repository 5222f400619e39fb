"""Count how users are split between the arms of an experiment, test the split, and read it from saved files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.task import Task
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.checkpoint import Checkpoint
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.inference.sample_ratio import sample_ratio_mismatch
from streammetrics.io.slice_plan import USERS
from streammetrics.metrics.values.distinct import DistinctSample
from streammetrics.numerics.slice_keys import format_atom
from streammetrics.reports.user_split import UserSplit

__all__ = [
    "add_users",
    "build_user_counter",
    "build_user_split",
    "count_exposures",
    "parse_shares",
    "separate_users",
]

EXPOSURES = "exposures"
"""The name under which a saved file stores the users by arm if they were counted from exposures, not from the log."""

USER_LIMIT = 1 << 19
"""The number of users per arm up to which the count is exact. Beyond it, only a sample of users is kept."""


def build_user_counter(metrics: Any, arm: str | None) -> Sliced | None:
    """Return an empty counter of the distinct units (such as users) in each arm; None if there are no arms or units.

    The counter keeps the hashes of unit IDs. It therefore recognizes, even after a merge, a unit that occurs in several
    rows, files or arms.
    """
    if arm is None or not isinstance(metrics, Sharded):
        return None
    how = definition_of(metrics).units.kind
    sample = DistinctSample(limit=USER_LIMIT, missing=how.missing, missing_values=how.missing_values)
    return Sliced(MetricCollection({USERS: Task(sample, value=metrics.unit)}), by=arm)


def count_exposures(path: str, counter: Sliced | None, threads: int | None) -> Sliced:
    """Count the users of each arm in a log of exposures. The empty `counter` defines the arm and unit columns."""
    from streammetrics.io.evaluate import evaluate
    from streammetrics.io.logs import Log

    assert counter is not None
    return evaluate(Log([path]), counter.inner, [counter.by], threads=threads).slices[counter.by]


def build_user_split(
    users: Sliced, shares: Mapping[str, float], *, exposed: bool, sequential: bool
) -> UserSplit | None:
    """Return the user count of each arm and the test of the shares; None if fewer than two arms are counted or planned.

    Parameters
    ----------
    users : Sliced
        A `DistinctSample` of the users, sliced by arm. Users without an arm are excluded.
    shares : dict of str to float
        The planned share of each arm; empty if no shares are planned.
    exposed : bool
        Whether the users were counted from exposures rather than from the log.
    sequential : bool
        Whether the test remains valid if results are inspected repeatedly.

    Raises
    ------
    UsageError
        Shares are planned, but not for every arm.
    """
    arms = {key: format_atom(key) for key in users.keys if key is not None}
    # In the planned shares, the case of a boolean arm does not matter: true and True are the same arm.
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
    """Combine the results of a pass over the log with the users by arm, in the form that `--save` writes."""
    return results if users is None else Bundle({**results, EXPOSURES if exposed else USERS: users})


def separate_users(content: Any) -> tuple[Any, Sliced | None, bool]:
    """Separate the counter of the users in each arm from the other content of a saved file.

    Return the other content; the counter, or None if the file has none; and whether the users were counted from
    exposures.
    """
    if isinstance(content, Checkpoint) and isinstance(total := content.total, MetricCollection) and USERS in total:
        rest = total.only([other for other in total.names if other != USERS])
        return Checkpoint(rest, content.log, content.parts, content.done, content.rows), total[USERS], False
    name = next((one for one in (USERS, EXPOSURES) if isinstance(content, Bundle) and one in content), None)
    if name is None:
        return content, None, False
    results = Bundle({other: one for other, one in content.items() if other != name})
    return results, content[name], name == EXPOSURES


def parse_shares(texts: Iterable[str]) -> dict[str, float]:
    """Parse the values of --shares, such as `old=90,new=10`, into a dict from arms to planned shares."""
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
