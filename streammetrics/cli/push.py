"""`streammetrics eval --push`: what was counted goes to a dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.errors import InvalidInputError, PushError
from streammetrics.io.evaluate import slice_name
from streammetrics.serve.push import checked_url, push, token_of
from streammetrics.serve.store.part_keys import key_of

__all__ = ["Pushed"]


@dataclass(frozen=True)
class Pushed:
    """Where states go, and under which key.

    Parameters
    ----------
    url : str
        Of the dashboard.
    experiment, hour : str or None
        As the options of these names.
    source : str
        Who counted. One name for all machines: the same log, scored again elsewhere, is then the same part.
    seq : int
        The number of the part.
    """

    url: str
    experiment: str | None
    hour: str | None
    source: str
    seq: int

    def check(self, arm: str | None, sets: list[tuple[str, ...]], window: str | None) -> None:
        """Raise UsageError where something is missing, before hours go into the log."""
        if self.experiment is None or self.hour is None:
            raise UsageError("--push needs --experiment, and --hour of the rows, such as 2026-06-01T09, in UTC")
        if arm is None:
            raise UsageError("--push needs --arm, the column of arms: a dashboard compares them")
        if len(sets) > 1 or window is not None:
            raise UsageError("--push takes one --by (country,device is the cross of two), and no --window")
        try:
            key_of(self.experiment, self.source, self.hour, self.seq)
            checked_url(self.url)
            token_of(None)
        except InvalidInputError as error:
            raise UsageError(str(error)) from None

    def send(self, scored: Any, arm: str, sets: list[tuple[str, ...]]) -> str:
        """Push the states by arm, and by slices if there are any; return what to say of it."""
        assert self.experiment is not None
        assert self.hour is not None
        names = (arm, *(sets[0] if sets else ()))
        where: dict[str, Any] = {"experiment": self.experiment, "source": self.source, "hour": self.hour}
        try:
            word = push(self.url, scored.slices[names], **where, seq=self.seq)
        except PushError as error:
            raise UsageError(f"--push: {error}") from None
        told = "pushed" if word == "stored" else "was there before, the same, "
        return f"{slice_name(names)}: {told} to {self.url} as {self.experiment}/{self.hour}/{self.source}-{self.seq}"
