"""States that are posted: what is stored, what is refused and with which words, and that nothing is half stored."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from serve.client import Client
from serve.fakes import HOUR, NOW, World, arms, world
from serve.slow import Slow, frames_with_trouble

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.format import frame
from streammetrics.format.frame import Frame
from streammetrics.serve.api import ingest
from streammetrics.serve.api.decoder import DecoderService, ThreadDecoder
from streammetrics.serve.api.ingest import Ingest, NoRoomError
from streammetrics.serve.api.part_check import PartChecker
from streammetrics.serve.api.part_summary import summarize_parts
from streammetrics.serve.api.reader_process import DecoderProcess
from streammetrics.serve.app import create_app
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.merge_parts import merge_parts
from streammetrics.serve.part_keys import PartKey, PostedPart, RowCounts
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import StoreDownError, StoreFullError, open_store

STATES = "/v1/experiments/rank/states"


@pytest.fixture
def here() -> World:
    return world()


DecoderOf = Callable[[Any], DecoderService]


@pytest.fixture
def client(here: World, decoder_of: DecoderOf) -> Iterator[Client]:
    settings = ServerSettings(clock=lambda: NOW, max_bytes=200_000, failures=1000)
    with Client(create_app(*here[:2], settings, decoder=decoder_of(here.store))) as client:
        client.headers["authorization"] = f"Bearer {here.writer}"
        yield client


def post(client: Client, data: bytes, hour: str = HOUR, source: str = "job", **query: Any) -> httpx.Response:
    return client.post(STATES, params={"hour": hour, "source": source, **query}, content=data)


def test_a_part_is_stored_once(here: World, client: Client) -> None:
    frame = arms()
    first = post(client, frame.to_bytes())
    assert (first.status_code, first.json()) == (201, {"state": "stored", "key": f"rank/{HOUR}/job-0"})
    assert [post(client, frame.to_bytes()).json()["state"] for _ in range(3)] == ["same"] * 3
    (part,) = here.store.kept.values()
    assert (part.key, part.digest, part.data, part.received_at) == (
        PartKey("rank", "job", 494529, 0),
        frame.digest(),
        frame.to_bytes(),
        NOW,
    )
    assert part.row_counts == RowCounts(60, "{}")
    assert here.board.told.wait(5)
    assert here.counted().digest() == frame.digest()


def test_rows_left_out_are_noted(here: World, client: Client) -> None:
    lenient = sm.Sliced([sm.CTR(), sm.AUC(bits=10)], by=("arm", "country"), on_invalid="drop")
    lenient.update([0, 1, 1], [0.5, float("nan"), 0.25], arm=["A", "B", "B"], country=["br", "de", "br"])
    assert post(client, lenient.to_bytes()).status_code == 201
    (part,) = here.store.kept.values()
    assert part.row_counts == RowCounts(3, '{"y_score": 1}')


def test_other_content_is_a_conflict(here: World, client: Client) -> None:
    post(client, arms(0).to_bytes())
    again = post(client, arms(1).to_bytes())
    assert again.status_code == 409
    assert "kept as a conflict" in again.json()["error"]
    assert [p.digest for p in here.store.kept.values()] == [arms(0).digest()]
    assert [p.digest for p in here.store.aside] == [arms(1).digest()]


def test_parts_of_an_hour_are_numbered(here: World, client: Client) -> None:
    assert [post(client, arms(i).to_bytes(), seq=i).status_code for i in range(3)] == [201] * 3
    assert sorted(key.seq for key in here.store.kept) == [0, 1, 2]


def weighed(weight: float) -> sm.Sliced:
    arms = sm.Sliced([sm.CTR(), sm.AUC(bits=10)], by=["arm", "country"])
    columns = {"arm": ["A", "B"] * 4, "country": ["br"] * 8, "sample_weight": [weight] * 8}
    return arms.update([0, 1] * 4, [0.5] * 8, **columns)


def closed() -> sm.Sliced:
    arms = sm.Sliced([sm.CTR(), sm.AUC(bits=10), sm.GroupAUC()], by=["arm", "country"])
    arms.update([0, 1], [0.25, 0.5], arm=["A", "A"], country=["br", "br"], group=["u", "u"])
    return cast(sm.Sliced, sm.seal(arms))


def in_no_arm(limit: int | None) -> bytes:
    """Rows that a limit leaves over, in slices that have it, or say that they have none."""
    columns = {"arm": ["A", "B"], "country": ["br", "br"]}
    said, held = (
        sm.Sliced([sm.CTR(), sm.AUC(bits=10)], by=["arm", "country"], limit=n).update([0, 1], [0.25, 0.5], **columns)
        for n in (limit, 0)
    )
    states = [
        other.with_cells(replace(other.cells, axes=mine.cells.axes))
        for mine, other in zip(states_of(said), states_of(held), strict=True)
    ]
    return frame.write_frame(states, definition_of(said).header())


def test_a_part_has_a_metric_that_was_counted_before(here: World) -> None:
    checker = PartChecker(lambda _: arms(metrics=[sm.LogLoss()]))
    (summary,) = summarize_parts([Frame(arms().to_bytes())])
    with pytest.raises(
        sm.IncompatibleStateError, match="has counted log_loss so far, but this part has none of these metrics"
    ):
        checker.check(experiment(here), summary)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (bytes, 400, "too few"),
        (lambda: b"hello" * 20, 400, "do not begin with SMET"),
        (lambda: arms().to_bytes()[:-1], 400, "checksum"),
        (lambda: sm.CTR().update([0, 1]).to_bytes(), 422, "expected metrics sliced by arm"),
        (lambda: arms(by=["country", "arm"]).to_bytes(), 422, "expected metrics sliced by arm"),
        (lambda: arms(by=["arm"]).to_bytes(), 422, "expected slices by country"),
        (
            lambda: arms(metrics=[sm.CTR(), sm.LogLoss()]).to_bytes(),
            422,
            "needs auc, but this part has only ctr, log_loss",
        ),
        (lambda: arms(keys=["A", "B", "C"]).to_bytes(), 422, "found 'C'"),
        (lambda: arms(keys=[0, 1]).to_bytes(), 422, "found 0, 1"),
        (lambda: sm.CTR().update([0, 1]).state, 400, "found a single state"),
        (lambda: weighed(2.0**30), 422, "exceeds the number of rows by 4,294,967,296 or more; scale the weights down"),
        (closed, 422, "sealed_groups contains closed groups, which can be counted only once"),
        (lambda: in_no_arm(limit=0), 422, "the limit of slices leaves 100.0% of the rows without an arm"),
        (lambda: in_no_arm(limit=None), 400, "arm has a merged remainder of keys, although it has no limit"),
    ],
)
def test_what_does_not_fit_is_refused(
    here: World, client: Client, given: Callable[[], Any], code: int, words: str
) -> None:
    part = given()
    if not isinstance(part, (bytes, sm.Sliced)):
        part = frame.write_frame([part], {"kind": "state"})
    answer = post(client, part.to_bytes() if isinstance(part, sm.Sliced) else part)
    assert (answer.status_code, here.store.kept, here.store.groups) == (code, {}, [])
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: arms(metrics=[sm.CTR(), sm.AUC(bits=12)]), "bits of 'auc' is 10 here and 12 there"),
        (
            lambda: arms(countries=[1, 2]),
            "keys of country are of kind string here and integer there",
        ),
        (
            lambda: sm.Sliced(sm.Sharded([sm.CTR(), sm.AUC(bits=10)], unit="user_id"), by=["arm", "country"]),
            "shards is 8",
        ),
    ],
)
def test_later_parts_have_the_plan_of_the_first(
    here: World, client: Client, given: Callable[[], sm.Sliced], words: str
) -> None:
    assert post(client, arms().to_bytes()).status_code == 201
    answer = post(client, given().to_bytes(), source="other")
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert len(here.store.kept) == 1


def test_more_metrics_are_welcome(here: World, client: Client) -> None:
    more = arms(1, metrics=[sm.AUC(bits=10), sm.LogLoss(), sm.CTR()])  # and the order is free
    assert post(client, arms(0).to_bytes()).status_code == 201
    assert post(client, more.to_bytes(), source="new").status_code == 201
    expected = merge_parts([arms(0), more])
    assert here.counted().digest() == expected.digest()


def test_the_plan_outlives_the_server(here: World) -> None:
    first = arms()
    here.store.put([PostedPart(PartKey("rank", "job", 494529, 7), first.to_bytes(), first.digest(), NOW)])
    with Client(create_app(*here[:2], ServerSettings(clock=lambda: NOW))) as client:
        client.headers["authorization"] = f"Bearer {here.writer}"
        assert post(client, arms(1, metrics=[sm.CTR(), sm.AUC(bits=9)]).to_bytes()).status_code == 422
        assert post(client, arms(1).to_bytes()).status_code == 201


def test_a_limit_that_forgets_arms_is_refused(here: World, client: Client) -> None:
    thing = sm.Sliced([sm.CTR(), sm.AUC(bits=10)], by=["arm", "country"], limit=1)
    thing.update(y_true=[0, 1], y_score=[0.1, 0.2], arm=["A", "B"], country=["br", "de"])
    answer = post(client, thing.to_bytes())
    assert answer.status_code == 422
    assert "set the limit on the slices within each arm" in answer.json()["error"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"hour": "2026-06-01 09"}, "2026-06-01T09"),
        ({"hour": "2026-06-01T22"}, "in the future"),
        ({"hour": "9999-12-31T23"}, "in the future"),
        ({"hour": "2026-05-31T23"}, "before the start of the experiment"),
        ({"hour": "0001-01-01T00"}, "before the start of the experiment"),
        ({"source": "../../etc"}, "source: expected"),
        ({"source": "a\nb"}, "source: expected"),
        ({"source": "x" * 101}, "source: expected"),
        ({"seq": "-1"}, "seq: expected"),
        ({"seq": "1" * 10}, "seq: expected"),
        ({"seq": "\u0661"}, "seq: expected"),
        ({"token": "x"}, "unknown query parameters: token"),
    ],
)
def test_keys_are_checked(here: World, client: Client, query: dict[str, str], words: str) -> None:
    answer = client.post(STATES, params={"hour": HOUR, "source": "job", **query}, content=arms().to_bytes())
    assert (answer.status_code, here.store.kept) == (400, {})
    assert words in answer.json()["error"]


def test_a_clock_may_be_an_hour_ahead(client: Client) -> None:
    assert post(client, arms().to_bytes(), hour="2026-06-01T21").status_code == 201


@pytest.mark.parametrize(
    ("error", "code"), [(StoreFullError("full"), 507), (StoreDownError("gone: password=secret"), 503)]
)
def test_a_store_that_fails_is_said(here: World, client: Client, error: Exception, code: int) -> None:
    assert post(client, arms(9).to_bytes(), source="before").status_code == 201
    here.store.fails = error
    first = post(client, arms().to_bytes())
    assert first.status_code == code
    assert "retry-after" in first.headers
    assert "secret" not in first.text
    here.store.fails = None
    assert post(client, arms().to_bytes()).json()["state"] == "stored"


def test_what_was_not_stored_fixes_no_plan(here: World, client: Client) -> None:
    here.store.put = failing(here.store.put)  # type: ignore[method-assign]
    assert post(client, arms(metrics=[sm.CTR(), sm.AUC(bits=12)]).to_bytes()).status_code == 507
    assert post(client, arms().to_bytes()).status_code == 201


def failing(put: Any) -> Any:
    """A call that fails once."""
    calls: list[Any] = []

    def once(parts: Any) -> Any:
        calls.append(parts)
        if len(calls) == 1:
            raise StoreFullError("full")
        return put(parts)

    return once


# -- the queue itself ------------------------------------------------------------------------------------------------


def experiment(here: World) -> Experiment:
    import json

    return Experiment.from_dict(json.loads(here.store.defined["rank"][-1]))


async def working(here: World, settings: ServerSettings, decoder: DecoderService) -> tuple[Ingest, asyncio.Task[None]]:
    queue = Ingest(here.store, here.board.mark_changed, settings, decoder)
    return queue, asyncio.create_task(queue.run())


@pytest.mark.slow
def test_waiting_frames_are_stored_together(here: World, decoder_of: DecoderOf) -> None:
    async def many() -> list[str]:
        queue, task = await working(here, ServerSettings(), decoder_of(here.store))
        one = experiment(here)
        here.store.open.clear()
        first = asyncio.create_task(queue.submit(PartKey("rank", "a", 494529), arms(0).to_bytes(), one))
        await asyncio.sleep(0)
        while queue.waiting:
            await asyncio.sleep(0)
        rest = [
            asyncio.create_task(queue.submit(PartKey("rank", "b", 494529, i), arms(i).to_bytes(), one))
            for i in range(20)
        ]
        while queue.waiting < 20:
            await asyncio.sleep(0)
        here.store.open.set()
        words = await asyncio.gather(first, *rest)
        task.cancel()
        return words

    assert asyncio.run(many()) == ["stored"] * 21
    assert here.store.groups == [1, 20]


def test_who_waits_is_told_that_the_server_stops(here: World, decoder_of: DecoderOf) -> None:
    """Those whose parts are just being stored, too: they send them again."""

    async def stopped() -> None:
        queue, task = await working(here, ServerSettings(), decoder_of(here.store))
        one = experiment(here)

        def take(seq: int) -> asyncio.Task[str]:
            return asyncio.create_task(queue.submit(PartKey("rank", "a", 494529, seq), arms(seq).to_bytes(), one))

        here.store.open.clear()
        first = take(0)
        await asyncio.sleep(0.3)
        assert queue.waiting == 0
        waiting = [first, take(1), take(2)]
        await asyncio.sleep(0)
        task.cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        found.append(*await asyncio.gather(take(3), return_exceptions=True))
        here.store.open.set()
        assert [(type(error), str(error)) for error in found] == [(NoRoomError, ingest.STOPPING)] * 4

    asyncio.run(stopped())


def test_where_many_post_groups_gather(here: World, decoder_of: DecoderOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who posts alone does not wait."""
    monkeypatch.setattr(ingest, "GROUP_INTERVAL", 3600.0)

    async def many() -> None:
        queue, task = await working(here, ServerSettings(), decoder_of(here.store))
        one, numbers = experiment(here), itertools.count()

        def take() -> asyncio.Task[str]:
            key = PartKey("rank", "a", 494529, next(numbers))
            return asyncio.create_task(queue.submit(key, arms(key.seq).to_bytes(), one))

        await take()
        await take()
        await asyncio.gather(take(), take())
        waiting = [take() for _ in range(4)]
        await asyncio.wait(waiting, timeout=0.2)
        assert queue.waiting == 4
        assert not any(done.done() for done in waiting)
        task.cancel()

    asyncio.run(many())
    assert here.store.groups == [1, 1, 2]


@pytest.mark.parametrize("limit", ["parts", "bytes"])
def test_a_full_queue_says_so_and_recovers(here: World, decoder_of: DecoderOf, limit: str) -> None:
    async def full() -> None:
        one, data = experiment(here), arms().to_bytes()
        settings = ServerSettings(waiting=3) if limit == "parts" else ServerSettings(waiting_bytes=3 * len(data))
        queue, task = await working(here, settings, decoder_of(here.store))
        posts = [asyncio.create_task(queue.submit(PartKey("rank", "a", 494529, i), data, one)) for i in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(NoRoomError, match="parts wait"):
            await queue.submit(PartKey("rank", "a", 494529, 3), data, one)
        assert await asyncio.gather(*posts) == ["stored"] * 3
        while queue.waiting:
            await asyncio.sleep(0.001)
        assert queue._bytes == 0
        assert await queue.submit(PartKey("rank", "a", 494529, 3), data, one) == "stored"
        task.cancel()

    asyncio.run(full())


@pytest.fixture(params=["thread", "process"])
def slow(request: pytest.FixtureRequest, here: World, tmp_path: Path) -> Iterator[DecoderService]:
    """A decoder that has its troubles with some frames."""
    decoder = (
        ThreadDecoder(here.store, Slow) if request.param == "thread" else DecoderProcess(str(tmp_path / "a.db"), Slow)
    )
    yield decoder
    Slow.free.set()
    decoder.close()
    Slow.free.clear()


def all_of(here: World, decoder: DecoderService, *rounds: Sequence[bytes], seconds: float = 20.0) -> list[Any]:
    """What becomes of frames of which those of a round are posted at once."""

    async def some() -> list[Any]:
        queue, task = await working(here, ServerSettings(decode_seconds=seconds), decoder)
        found, one, numbers = list[Any](), experiment(here), itertools.count()
        for frames in rounds:
            posts = [queue.submit(PartKey("rank", "a", 494529, next(numbers)), data, one) for data in frames]
            found += await asyncio.gather(*posts, return_exceptions=True)
        while queue.waiting or queue._bytes > 0:
            await asyncio.sleep(0.001)
        assert queue._bytes == 0
        task.cancel()
        return found

    return asyncio.run(some())


@pytest.mark.slow
def test_a_frame_that_takes_too_long_is_refused_alone(here: World, slow: DecoderService) -> None:
    frames = [arms(0).to_bytes(), frames_with_trouble()["endless"], arms(1).to_bytes(), arms(2).to_bytes()]
    first, second, *rest = all_of(here, slow, frames, [arms(3).to_bytes()], seconds=0.2)
    assert (first, rest) == ("stored", ["stored"] * 3)
    assert isinstance(second, sm.StateFormatError)
    assert "within 0.2 s" in str(second)
    assert sum(here.store.groups) == 4


@pytest.mark.slow
def test_what_was_late_fixes_no_plan(here: World, slow: DecoderService) -> None:
    late, good = all_of(here, slow, [frames_with_trouble()["odd"]], [arms(0).to_bytes()], seconds=0.2)
    assert isinstance(late, sm.StateFormatError)
    assert good == "stored"


@pytest.mark.slow
def test_a_frame_that_there_is_no_memory_for_may_be_sent_again(here: World, slow: DecoderService) -> None:
    first, second, third = all_of(here, slow, [arms(0).to_bytes(), frames_with_trouble()["huge"], arms(1).to_bytes()])
    assert (first, third) == ("stored", "stored")
    assert isinstance(second, NoRoomError)
    assert "too little memory" in str(second)


@pytest.mark.slow
def test_a_frame_that_what_decodes_dies_of_is_left_alone(here: World, tmp_path: Path) -> None:
    """Nobody knows why it died: who posted the others need not, and who posted that may send it again."""
    frames = [arms(0).to_bytes(), frames_with_trouble()["deadly"], arms(1).to_bytes()]
    first, second, third = all_of(here, DecoderProcess(str(tmp_path / "a.db"), Slow), frames)
    assert (first, third) == ("stored", "stored")
    assert isinstance(second, NoRoomError)
    assert "a new process is started; send the part again later" in str(second)


@pytest.mark.slow
def test_a_mistake_fails_a_group_and_fixes_no_plan(here: World, slow: DecoderService) -> None:
    other = arms(metrics=[sm.CTR(), sm.AUC(bits=12)]).to_bytes()
    *failed, good = all_of(here, slow, [other, frames_with_trouble()["faulty"]], [arms(0).to_bytes()])
    assert [type(error) for error in failed] == [RuntimeError] * 2
    assert good == "stored"


def test_threads_that_are_all_stuck_are_said(here: World) -> None:
    decoder = ThreadDecoder(here.store, Slow)
    try:
        found = all_of(here, decoder, [frames_with_trouble()["endless"]] * 4, seconds=0.1)
    finally:
        Slow.free.set()
    assert [type(error) for error in found] == [sm.StateFormatError] * 2 + [NoRoomError] * 2
    Slow.free.clear()


# -- in a process of its own -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_decodes(here: World, tmp_path: Path) -> None:
    decoder = DecoderProcess(str(tmp_path / "a.db"), Slow)
    app = create_app(*here[:2], ServerSettings(clock=lambda: NOW), decoder=decoder)
    with Client(app, authorization=f"Bearer {here.writer}") as client, ThreadPoolExecutor() as pool:
        while client.get("/readyz").status_code != 200:
            pass
        waits = pool.submit(post, client, frames_with_trouble()["endless"])
        assert not wait([waits], 1.5).done
        os.kill(decoder.worker.pid or 0, signal.SIGKILL)
        answer = waits.result(10)
        assert (answer.status_code, here.store.kept) == (429, {})
        assert "a new process is started; send the part again later" in answer.json()["error"]
        assert "retry-after" in answer.headers
        assert post(client, arms(0).to_bytes()).status_code == 201
    assert decoder.worker.pid is None


@pytest.mark.slow
def test_a_process_finds_the_plan_in_the_store(here: World, tmp_path: Path) -> None:
    url, one = str(tmp_path / "a.db"), experiment(here)
    first, other = arms(), arms(1, metrics=[sm.CTR(), sm.AUC(bits=9)])
    decoder = DecoderProcess(url)
    with open_store(url) as store:
        store.define("rank", here.store.defined["rank"][-1], by="test", at=0.0)
        store.put([PostedPart(PartKey("rank", "job", 494529, 7), first.to_bytes(), first.digest(), NOW)])
        found = decoder.decode([other.to_bytes(), first.to_bytes()], [one, one], 1 << 20, 20.0)
    decoder.close()
    assert isinstance(found[0].error, sm.IncompatibleStateError)
    assert "bits of 'auc' is 10 here and 9 there" in str(found[0].error)
    assert (found[1].digest, found[1].error) == (first.digest(), None)
