"""One stream a page, which says that there is something new to look at, and beats while there is not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.responses import StreamingResponse

from ..evaluation import Evaluation

__all__ = ["BEAT", "stream"]

BEAT = 15.0  # seconds; proxies close what is silent for a minute
RETRY = 3000  # milliseconds until a browser asks again


def stream(sources: Sequence[AsyncIterator[Evaluation]], now: str, beat: float = BEAT) -> StreamingResponse:
    """Answer with events: what is shown now, then each new evaluation of any source, until the page goes or all end."""
    return StreamingResponse(
        _events(sources, now, beat),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _events(sources: Sequence[AsyncIterator[Evaluation]], now: str, beat: float) -> AsyncIterator[str]:
    yield f"retry: {RETRY}\nevent: look\ndata: {now}\n\n"
    waiting: dict[asyncio.Future[Evaluation], AsyncIterator[Evaluation]] = {_next(s): s for s in sources}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=beat, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield ": beat\n\n"
            for one in done:
                source = waiting.pop(one)
                with contextlib.suppress(StopAsyncIteration):
                    found = one.result()
                    yield f"event: look\ndata: {found.at!r}\n\n"
                    waiting[_next(source)] = source
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for source in sources:
            await _close(source)


def _next(source: AsyncIterator[Evaluation]) -> asyncio.Future[Evaluation]:
    return asyncio.ensure_future(anext(source))


async def _close(source: Any) -> None:
    if hasattr(source, "aclose"):
        await source.aclose()
