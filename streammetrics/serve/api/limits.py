"""Limits for a client: requests per second, wrong tokens per minute, and the size and duration of a request body."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request

from ...errors import StreamMetricsError

__all__ = ["BodyError", "RateLimiter", "drain_body", "read_body"]

DRAIN_SECONDS = 2.0
"""Seconds for which the rest of a refused body is read and discarded.

Otherwise, a sender that is still writing would get a "broken pipe" error instead of the answer.
"""


class BodyError(StreamMetricsError):
    """An error raised if a request body is too large, too slow or incomplete; `status` is the HTTP status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RateLimiter:
    """A limit on how often each client may try something, such as sending a request.

    Each client has a token bucket, which refills at `rate` tries per second and holds at most `burst` tries.

    Parameters
    ----------
    rate : float
        The number of tries per second.
    burst : int
        The largest number of tries that a client can make in immediate succession after a long enough pause.
    max_clients : int
        The largest number of buckets; if there are more, the buckets of the clients that have been inactive the longest
        are removed.
    clock : callable
        Returns seconds from a monotonic clock.

    Examples
    --------
    >>> rate = RateLimiter(1.0, 2, clock=lambda: 0.0)
    >>> [rate.take("a") for _ in range(3)], rate.take("b")
    ([True, True, False], True)
    """

    def __init__(
        self, rate: float, burst: int, *, max_clients: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self.max_clients, self.clock = rate, burst, max_clients, clock
        # For each client: the number of tries left when the bucket was last used, and the time of that use.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def count_tries_left(self, client: str) -> float:
        """Return how many tries a client has left; the number can be fractional."""
        # A bucket refills as time passes. The number of tries in it is computed only when it is needed.
        left, then = self._buckets.get(client, (float(self.burst), self.clock()))
        return min(self.burst, left + (self.clock() - then) * self.rate)

    def take(self, client: str) -> bool:
        """Use up one of a client's tries; return False if the client has none left."""
        left = self.count_tries_left(client)
        allowed = left >= 1
        self._buckets[client] = (left - allowed, self.clock())
        self._buckets.move_to_end(client)
        if len(self._buckets) > self.max_clients:
            self._buckets.popitem(last=False)
        return allowed

    def seconds_to_wait(self, client: str) -> int:
        """Return the seconds until a client may try again, rounded to an integer of at least 1."""
        return max(1, round((1 - self.count_tries_left(client)) / self.rate))


async def read_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Return the body of a request, unless it has more than `max_bytes` or takes longer than `seconds` to arrive.

    Raises
    ------
    BodyError
        The body could not be read. The status is 413 (too large), 408 (too slow) or 400 (the client disconnected).
    """
    too_large = BodyError(
        413, f"the body is larger than {max_bytes:,} bytes, the limit of this server; send a smaller body"
    )
    declared_length = request.headers.get("content-length", "")
    if declared_length.isdecimal() and int(declared_length[:20]) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                if len(body) + len(piece) > max_bytes:
                    raise too_large
                body += piece
    except TimeoutError:
        raise BodyError(
            408, f"only {len(body):,} bytes of the body arrived within {seconds:g} s; send the request again"
        ) from None
    except ClientDisconnect:
        raise BodyError(400, f"the client closed the connection after {len(body):,} bytes of the body") from None
    return bytes(body)


async def drain_body(request: Request, max_bytes: int) -> None:
    """Read and discard the rest of a refused request's body, up to `max_bytes` and for at most `DRAIN_SECONDS`.

    Otherwise, a client that is still sending its body would not read the response.
    """
    left = max_bytes
    # None of these errors matters, because the request is refused anyway. Starlette raises RuntimeError if the body was
    # already read.
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return
