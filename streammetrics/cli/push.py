"""`streammetrics eval --push`: post the metrics of one hour to a dashboard, as serialized states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.errors import InvalidInputError, PushError
from streammetrics.io.slice_plan import slice_name
from streammetrics.serve.part_keys import parse_key
from streammetrics.serve.push import normalize_url, push, read_token

__all__ = ["PushTarget"]


@dataclass(frozen=True)
class PushTarget:
    """Where `--push` posts states: the address of a dashboard, and the key under which it stores the states.

    Parameters
    ----------
    url : str
        The URL of the dashboard.
    experiment, hour : str or None
        The command-line options with the same names.
    source : str
        Name of the sender. Several machines may share a name. If one of them scores a log whose states another has
        already posted, the new states replace the old ones.
    seq : int
        The number of this log within the hour, if the hour has several logs.
    """

    url: str
    experiment: str | None
    hour: str | None
    source: str
    seq: int

    def check(self, arm: str | None, sets: list[tuple[str, ...]], window: str | None) -> None:
        """Raise UsageError if an option that --push needs is missing or invalid, or if an option conflicts with --push.

        `eval` calls this method before it counts the rows of the log.
        """
        if self.experiment is None or self.hour is None:
            raise UsageError(
                "--push needs --experiment, the ID of the experiment, and --hour, the hour of the rows in UTC, such as "
                "2026-06-01T09"
            )
        if arm is None:
            raise UsageError("--push needs --arm, the column of arms, because the dashboard compares arms")
        if len(sets) > 1 or window is not None:
            raise UsageError(
                "--push allows at most one --by, and no --window; for slices by two columns, use --by country,device"
            )
        try:
            parse_key(self.experiment, self.source, self.hour, self.seq)
            normalize_url(self.url)
            read_token(None)
        except InvalidInputError as error:
            raise UsageError(str(error)) from None

    def send(self, scored: Any, arm: str, sets: list[tuple[str, ...]]) -> str:
        """Post the states by arm and slice to the dashboard; return a message for the user."""
        assert self.experiment is not None
        assert self.hour is not None
        names = (arm, *(sets[0] if sets else ()))
        key: dict[str, Any] = {"experiment": self.experiment, "source": self.source, "hour": self.hour}
        try:
            word = push(self.url, scored.slices[names], **key, seq=self.seq)
        except PushError as error:
            raise UsageError(f"--push: {error}") from None
        outcome = "pushed" if word == "stored" else "was already pushed with the same content"
        return f"{slice_name(names)}: {outcome} to {self.url} as {self.experiment}/{self.hour}/{self.source}-{self.seq}"
