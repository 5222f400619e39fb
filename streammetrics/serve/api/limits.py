"""How much a client may ask for: requests a second, wrong tokens, bytes of a body, and the time it takes."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request

from ...errors import StreamMetricsError

__all__ = ["BodyError", "Rate", "linger", "read_body"]

LINGER = 2.0
"""Seconds for which a refused body is thrown away, so that its sender reads the answer rather than a broken pipe."""


class BodyError(StreamMetricsError):
    """A body is too large, or too slow; `status` says which."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Rate:
    """So many tries a second for each client, and a burst of more: a bucket that fills again.

    Parameters
    ----------
    rate : float
        Tries a second.
    burst : int
        What a client that was quiet may do at once.
    most : int
        Clients that are known; of more, those that were quiet longest are forgotten.
    clock : function
        Seconds.

    Examples
    --------
    >>> rate = Rate(1.0, 2, clock=lambda: 0.0)
    >>> [rate.take("a") for _ in range(3)], rate.take("b")
    ([True, True, False], True)
    """

    def __init__(
        self, rate: float, burst: int, *, most: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self.most, self.clock = rate, burst, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when that was

    def __len__(self) -> int:
        return len(self._left)

    def left(self, client: str) -> float:
        """Return how many tries a client has now."""
        left, then = self._left.get(client, (float(self.burst), self.clock()))
        return min(self.burst, left + (self.clock() - then) * self.rate)

    def take(self, client: str) -> bool:
        """Take one try; False if there is none."""
        left = self.left(client)
        allowed = left >= 1
        self._left[client] = (left - allowed, self.clock())
        self._left.move_to_end(client)
        if len(self._left) > self.most:
            self._left.popitem(last=False)
        return allowed

    def wait(self, client: str) -> int:
        """Return the seconds until there is a try again."""
        return max(1, round((1 - self.left(client)) / self.rate))


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Return a body; refuse it while it is read, as soon as it is too large or takes too long.

    Raises
    ------
    BodyError
        With status 413 or 408.
    """
    too_large = BodyError(413, f"the body is larger than {most:,} bytes, the most that is taken here")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:20]) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                if len(body) + len(piece) > most:
                    raise too_large
                body += piece
    except TimeoutError:
        raise BodyError(408, f"the body did not arrive within {seconds:g} s; {len(body):,} bytes of it did") from None
    except ClientDisconnect:
        raise BodyError(400, f"the client left after {len(body):,} bytes of the body") from None
    return bytes(body)


async def linger(request: Request, most: int) -> None:
    """Throw away what is left of a body that is refused: a client that is still writing would not see why."""
    left = most
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # RuntimeError: it was read before
        async with asyncio.timeout(LINGER):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return
