"""Pages of the dashboard: every number is that of the evaluation, every text is text, every file is its table."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pages import read, says, tree
from serve import evaluations
from serve.evaluations import ALL, EVIL, START, WEIRD, looks, points
from serve.sites import OWNER, POLICY, READER, FakeBoard, Person, Site, served, site_of

import streammetrics as sm
from streammetrics.serve.evaluation.evaluation import Evaluation
from streammetrics.serve.page.history import ExperimentHistory
from streammetrics.serve.page.page_data import build_page, build_source_rows
from streammetrics.serve.page.routes import stream_events
from streammetrics.serve.page.view import View
from streammetrics.serve.part_keys import HOUR, parse_hour


@pytest.fixture(scope="module")
def site() -> Site:
    return site_of()


@pytest.fixture(scope="module")
def get(site: Site) -> Iterator[Callable[..., Any]]:
    with asked(site) as client:
        yield client.get


@contextlib.contextmanager
def asked(site: Site) -> Iterator[httpx.Client]:
    """Serve pages, and ask for them."""
    with served(site), httpx.Client(base_url=site.url, timeout=30) as client:
        yield client


def rows_of(page: Any, kind: str) -> dict[str, list[str]]:
    """The cells of a table by what its rows are called."""
    (table,) = page.all("table", class_=kind)
    return {
        row.all("th")[0].text.removesuffix("↑ higher is better").removesuffix("↓ lower is better").strip():
        [cell.text for cell in row.all("td")] for row in table.all("tr") if row.all("td")
    }  # fmt: skip


# -- what it says -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ALL if n not in ("empty", "first_hour", "weird")])
def test_the_scorecard_has_the_figures_of_the_evaluation(get: Any, name: str) -> None:
    found = ALL[name]()
    treatment = found.table[0].treatment
    rows = rows_of(tree(get(f"/experiments/{name}").text), "score")
    mine = [r for r in found.table if r.treatment == treatment]
    assert list(rows) == [r.metric for r in mine]
    for row in mine:
        before, after, change, _, between, limit, proof, word = rows[row.metric]
        assert says(before, row.control_value)
        assert says(after, row.value)
        assert says(change, row.change)
        if row.low is None or row.high is None:
            assert between == "–"
        else:
            assert [says(t, v) for t, v in zip(between.split(" to "), (row.low, row.high), strict=True)] == [True, True]
        limit, _, allowed = limit.partition(" (")
        if allowed:
            assert says(
                allowed.removesuffix(")"), row.control_value * (1 + row.margin * (1 if row.better == "low" else -1))
            )
        assert limit == (
            "–" if row.margin is None else f"{'≤ +' if row.better == 'low' else '≥ −'}{100 * row.margin:g}\u202f%"
        )
        assert proof.removeprefix("certified ") == ("exact" if row.bound == 0.0 else "±0.0021\u202f%")
        expected = "own traffic" if row.role == "model" else row.word
        assert word == ("withheld" if name == "mismatch" else expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["running", "forty", "three", "stale"])
def test_slices_have_their_figures(get: Any, name: str) -> None:
    found = ALL[name]()
    treatment = found.table[0].treatment
    rows = rows_of(tree(get(f"/experiments/{name}").text), "slices")
    mine = {next(iter(s.slice.values())): s for s in found.slices if (s.treatment, s.metric) == (treatment, "ctr")}
    plain = {re.sub(r" 12 positives.*", "", key): cells for key, cells in rows.items()}
    assert set(plain) == set(mine)
    for key, row in mine.items():
        part, _, delta, values, _, word = plain[key]
        assert says(part.split(" ")[-1], row.share)
        change, *half = delta.split(" ±")
        assert says(change, row.change)
        assert bool(half) == (row.low is not None)
        assert says(values.split(" → ")[0], row.control_value)
        assert says(values.split(" → ")[1], row.value)
        assert word == row.word


def test_warnings_stand_below_the_verdict_of_their_treatment() -> None:
    site, warning = site_of(), "Simpson's paradox in ctr by country: treatment is lower than control over all rows."
    one = site.store.evaluations["running"]
    site.store.evaluations["running"] = replace(one, warnings={"treatment": [warning], "other": ["Not shown."]})
    with asked(site) as client:
        (facts,) = tree(client.get("/experiments/running").text).all("dl", class_="facts")
    told = dict(zip((d.text for d in facts.all("dt")), (d.text for d in facts.all("dd")), strict=True))
    assert told["caution"] == warning
    assert "Not shown." not in facts.text


def test_the_verdict_is_first_then_its_figures(get: Any) -> None:
    text = read(get("/experiments/ship").text)
    assert (
        "Ship treatment : ctr +5.7\u202f%. 95\u202f% always +3.8\u202f% to +7.6\u202f%, and all 3 guardrails are held."
        in text
    )
    assert "ctr went from 1.945\u202f% to 2.056\u202f%, +5.7\u202f%." in text
    assert "For a single look, the interval would be ±1.2\u202f% instead of ±1.9\u202f%." in text
    assert "3 of 3 held." in text
    assert "The interval has excluded zero since Mon 1 June" in text


def test_arms_that_are_not_comparable_have_no_verdict(get: Any) -> None:
    page = tree(get("/experiments/mismatch").text)
    assert page.all("main")[0].text.startswith("Sample ratio mismatch: no verdict. The split of users between")
    assert page.all("h1")[0].text == "No verdict: the arms are not comparable."
    words = [
        cell.text
        for kind in ("score", "slices")
        for t in page.all("table", class_=kind)
        for cell in t.all("td", class_="verd")
    ]
    assert set(words) == {"withheld"}
    assert not page.all("span", class_="d")
    assert "Holds at every look" not in page.text
    assert "guardrails" not in [d.text for d in page.all("dt")[:4]]


def test_what_is_late_or_silent_is_said(get: Any) -> None:
    stale = tree(get("/experiments/stale").text)
    assert stale.all("div", class_="soft")[0].text.startswith(
        "Data of “impressions” is 5 h 40 min overdue. “impressions” has posted nothing after Sun 7 June 18:00 UTC. "
        "The other sources are counted."
    )
    assert stale.all("h1")[0].text.startswith("Keep running")  # readings stay
    running = tree(get("/experiments/running").text)
    assert not running.all("div", class_="soft")
    assert "Some sources are not fresh: conversions late (2 h 12 min overdue)." in running.text


def test_differences_are_those_of_the_values_that_are_shown() -> None:
    """Few digits are certain, but 105 and 104 are not -2 %."""
    given = evaluations.row("latency", "primary", -0.0165, 0.45, better="low", control_value=105.3)
    page = build_page(replace(ALL["running"](), table=[given]), ExperimentHistory(), View())
    assert page.card is not None
    shown = page.card.groups[0].rows[0]
    assert (shown.b, shown.a, shown.change) == ("105.3", "103.6", "−2\u202f%")
    adjusted = replace(ALL["running"](), table=[given._replace(change=-0.03)])
    page = build_page(adjusted, ExperimentHistory(), View())
    assert page.card is not None
    assert (page.card.groups[0].rows[0].b, page.card.groups[0].rows[0].a) == ("105", "104")


@pytest.mark.parametrize("name", ["ship", "mismatch", "early"])
def test_late_changes_are_said_for_good(name: str) -> None:
    """And not that stopping on a good day is no cheating."""
    changes = ["primary: changed from ctr to auc (version 2, by ann), after the first data; accepted: a typo"]
    headline = build_page(replace(ALL[name](), late_changes=changes), ExperimentHistory(), View()).headline
    assert [fact.text for fact in headline.facts if fact.label == "changed"] == [f"{changes[0]}."]
    assert not any("may stop at any time" in fact.text for fact in headline.facts)


def test_data_does_not_end_in_the_future() -> None:
    """A source may post an hour that is not over yet."""
    one = ALL["running"]()
    page = build_page(replace(one, at=(START + 167.25) * 3600), ExperimentHistory(), View())
    assert (page.freshness, page.data_end) == ("data to Sun 7 June 23:15 UTC", (START + 167.25) * 3600)
    assert build_source_rows(page)[0][1][0] == "Sun 7 June 23:15 UTC"
    assert build_page(one, ExperimentHistory(), View()).freshness == "data to Sun 7 June 24:00 UTC"


@pytest.mark.slow
def test_it_says_since_when_it_is_computing() -> None:
    site = site_of()
    name = next(iter(ALL))
    with asked(site) as client:
        for path in (f"/experiments/{name}", f"/experiments/{name}?fragment=1"):
            site.board.computing = {}
            assert "being computed" not in client.get(path).text
            site.board.computing = {name: 1_800_000_000.0}
            assert "a new evaluation is being computed since Fri 15 January 08:00 UTC" in client.get(path).text


def test_too_early_and_nothing_yet(get: Any) -> None:
    early = tree(get("/experiments/early").text)
    assert early.all("h1")[0].text == "No verdict yet."
    assert "No verdict before 7 days: 1.2 so far, 1,940 of 10,000 users." in early.text
    assert not early.all("table", class_="score")[0].all("line", class_="band")
    empty = tree(get("/experiments/empty").text)
    assert empty.all("h1")[0].text == "No data yet."
    assert not empty.all("table")
    for page in (early, empty):
        assert not re.search(r"\b(nan|None)\b", page.text)


def test_the_first_looks_are_readable() -> None:
    """Intervals that say nothing are not shown, and do not stretch an axis."""
    first = ALL["first_hour"]()
    for count in range(6):
        seen = [look._replace(low=-1.0, high=10.0 ** (27 - 6 * i)) for i, look in enumerate(looks(n=count))]
        page = build_page(first, ExperimentHistory(looks=seen), View())
        assert page.card is not None
        assert {(r.change, r.between, r.word) for g in page.card.groups for r in g.rows} == {("–", "", "too early")}
        assert (page.band, page.hero) == (None, None)
        assert [fact.kind for fact in page.headline.facts if fact.kind == "ci"] == []
        assert [chart.title for chart in page.charts if "separately" in chart.title] == []
    calm = [*seen, *looks(n=30)[20:]]
    page = build_page(ALL["running"](), ExperimentHistory(looks=calm), View())
    assert page.band is not None
    assert page.band.y.high < 1.0
    assert "15 looks so far. 5 of them came too early" in page.band.summary


def test_users_data_definition_and_provenance(get: Any) -> None:
    page = tree(get("/experiments/running").text)
    found = ALL["running"]()
    wanted = (
        "so far 299,997", "planned 400,000", "more until a decision 33,000", "days until a decision about 3",
        "2 June 16:00, 2 June 17:00", "24 bad price", f"sha256 {found.digest}", "6,000,000 in 336 parts", "0.031",
        "users: changed from 300,000 to 400,000", "2026-06-02T06 conversions-0", "Sun 14 June 24:00 UTC",
        "2 hours of conversions came late.",
        "cover the hours up to Sat 6 June 24:00 UTC", "a difference of 1.7\u202f% can be detected",
        "Detecting a difference of 1\u202f% needs 1,250,000 users, in about 86 more days",
    )  # fmt: skip
    for want in wanted:
        assert want in page.text, want
    assert "hooks.example" not in page.text  # who knows it may post there
    arms = rows_of(page, "arms")
    for arm in found.arms:
        planned, users, share, rows, positives, value = arms[arm.arm]
        assert [says(planned, arm.planned), says(users, arm.users), says(share, arm.share), says(rows, arm.rows)] == [
            True
        ] * 4
        assert says(positives, arm.positives)
        assert says(value, arm.value)


def test_three_treatments_one_at_a_time(get: Any) -> None:
    page = tree(get("/experiments/three?arm=ranker+d").text)
    assert page.all("h1")[0].text == "Do not ship ranker d : ctr is worse, −3.1\u202f%."
    assert rows_of(page, "score")["ctr"][2] == "−3.1\u202f%"
    links = [a.attrs["href"] for a in page.all("table", class_="told")[0].all("a")]
    assert links == ["?arm=ranker+b", "?arm=ranker+c", "?arm=ranker+d"]
    assert "98.33\u202f% always" in page.text
    assert tree(get("/experiments/three?arm=nobody").text).all("h1")[0].text.startswith("Ship ranker b")


def test_links_carry_what_is_looked_at(get: Any) -> None:
    page = tree(get("/experiments/forty?metric=latency&slice=device&by=hour&from=2026-06-02&to=2026-06-03").text)
    assert set(rows_of(page, "slices")) == {"android", "ios", "desktop", "tablet"}
    charts = [json for s in page.all("svg") if (json := s.attrs.get("data-pts"))]
    assert "2 Jun 00h" in charts[1]
    assert "3 Jun 23h" in charts[1]
    assert "4 Jun" not in charts[1]
    assert "1 Jun" not in charts[1]
    every = [a.attrs["href"] for a in page.all("a") if a.attrs["href"].startswith("?")]
    assert every
    assert all("metric=" in h and "from=2026-06-02T00&to=2026-06-03T23" in h for h in every)
    hidden = {
        i.attrs["name"]: i.attrs["value"] for i in page.all("form", class_="range")[0].all("input", type="hidden")
    }
    assert hidden == {"metric": "latency", "slice": "device", "by": "hour"}
    assert get("/experiments/forty?from=never&to=2026-99-99&by=week&slice=x").status_code == 200


def test_it_is_said_from_when_on_there_are_hours() -> None:
    """The hours of merged days are no longer known."""
    one, by_hour = ALL["running"](), View(by="hour")
    assert build_page(one, ExperimentHistory(), by_hour).hours_note == ""
    merged = replace(one, series=[p for p in one.series if p.hour >= START + 96])
    note = build_page(merged, ExperimentHistory(), by_hour).hours_note
    assert note.startswith("Values by hour begin Fri 5 June 00:00 UTC. The hours of earlier days are merged")
    assert build_page(merged, ExperimentHistory(), View()).hours_note == ""
    gone = build_page(replace(one, series=[]), ExperimentHistory(), by_hour).hours_note
    assert gone.startswith("There are no values by hour.")


def test_a_view_is_what_its_address_says() -> None:
    view = View.from_query(
        {"arm": "b", "metric": "ctr", "slice": "x", "from": "2026-06-01T05", "to": "2026-06-02", "by": "hour"}
    )
    assert View.from_query(dict(pair.split("=") for pair in view.to_query().split("&"))) == view
    assert [view.contains(h + view.since) for h in (-1, 0, 42, 43)] == [False, True, True, False]


def test_at_a_glance(get: Any) -> None:
    rows = rows_of(tree(get("/").text), "glance")
    told = {key.rpartition(" ")[2]: cells for key, cells in rows.items()}
    assert set(told) == set(ALL)
    assert told["ship"][:2] == ["ship ctr +5.7\u202f%.", "none"]
    assert told["breached"][0] == "do not latency is breached, +9.1\u202f%."
    assert "guardrail breached latency" in told["breached"][1]
    assert told["mismatch"][0] == "withheld The arms are not comparable."
    assert "sample ratio" in told["mismatch"][1]
    assert "silent impressions, 5 h 40 min overdue" in told["stale"][1]
    assert told["three"][0] == "do not ranker d: ctr is worse, −3.1\u202f%. And 2 more treatments."
    assert told["empty"][0] == "no data No part has been posted yet."
    assert told["running"][2] == "299,997 of 400,000"


# -- hostile ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/experiments/weird", "/experiments/weird?by=hour&fragment=1"])
def test_what_names_say_is_text(get: Any, path: str) -> None:
    page = get(path).text
    assert "<img" not in page
    assert len(re.findall("<script", page)) == (0 if "fragment" in path else 2)  # the files
    assert "alert(1)" in tree(page).text
    assert not re.search(r"\sstyle=|\son\w+=[^\"&]*alert\(\d\)\"|javascript:", page.replace("onerror=alert(2)&gt;", ""))


def test_weird_names_are_all_there(get: Any) -> None:
    names = " ".join(tree(get("/experiments/weird").text).all("table", class_="slices")[0].text.split())
    for name in WEIRD:
        assert (name or "(empty)") in names


def test_what_is_asked_wrongly_fails_kindly(get: Any) -> None:
    for path in ("/experiments/none", "/experiments/..%2fx", "/static/page.css", "/static/..%2froutes.py",
                 "/experiments/running/none.csv", "/experiments/running/none.png", "/experiments/empty/total.smet",
                 "/experiments/empty/looks.png"):  # fmt: skip
        assert get(path).status_code == 404, path
    evil = get("/experiments/running", params=dict.fromkeys(("arm", "metric", "slice", "from", "to", "by"), EVIL))
    assert evil.status_code == 200
    assert "<script>alert" not in evil.text
    assert "<img" not in evil.text


@pytest.mark.slow
def test_who_may_not_read_sees_nothing() -> None:
    site = site_of(hidden={"running"})
    with asked(site) as client:
        for path in ("", "/live", "/scorecard.csv", "/looks.png", "/total.smet"):
            assert client.get(f"/experiments/running{path}").status_code == 401
        assert client.post("/experiments/running/conflicts/7", data={"form": OWNER.csrf_token}).status_code == 401
        assert "running" not in rows_of(tree(client.get("/").text), "glance")
        site.hidden.add("")
        assert client.get("/").status_code == 401
        assert client.get("/live").status_code == 401
    assert not site.store.decided


# -- conflicts ----------------------------------------------------------------------------------------------------------


def post(person: Person, token: str, decision: str = "accept", reason: str = "late") -> tuple[Site, Any]:
    site, fields = site_of(person=person), {"form": token, "decision": decision, "reason": reason}
    with asked(site) as client:
        return site, client.post("/experiments/running/conflicts/7", data=fields)


@pytest.mark.parametrize("decision", ["accept", "reject"])
def test_the_owner_decides_a_conflict_with_what_only_the_page_knows(decision: str) -> None:
    site, answer = post(OWNER, OWNER.csrf_token, decision)
    assert (answer.status_code, answer.headers["location"]) == (303, "/experiments/running#data")
    assert site.store.decided == [("running", 7, decision, "ann", "late")]


@pytest.mark.parametrize(("decision", "reason"), [("accept", " "), ("drop", "late")])
def test_a_conflict_is_decided_with_a_reason(decision: str, reason: str) -> None:
    site, answer = post(OWNER, OWNER.csrf_token, decision, reason)
    assert answer.status_code == 400
    assert not site.store.decided


@pytest.mark.parametrize(
    ("person", "token"),
    [(OWNER, ""), (OWNER, "0" * 64), (OWNER, "ü"), (READER, READER.csrf_token), (Person("", "owner", ""), "")],
)
def test_nobody_else_accepts_it(person: Person, token: str) -> None:
    site, answer = post(person, token)
    assert answer.status_code == 403
    assert not site.store.decided


@pytest.mark.slow
def test_the_form_is_for_the_owner() -> None:
    for person, shown in ((OWNER, True), (READER, False)):
        with asked(site_of(person=person)) as client:
            page = tree(client.get("/experiments/running").text)
            posts = [f.attrs["action"] for f in page.all("form") if f.attrs["method"] == "post"]
            mine = ["annotations", "conflicts/7", "voided", "closed", "decisions"] if shown else []
            assert posts == [*(f"/experiments/running/{action}" for action in mine), "/logout"]
            assert "Conflicts" in page.text


@pytest.mark.slow
def test_who_has_no_session_cannot_end_it() -> None:
    with asked(site_of(person=READER._replace(csrf_token=""))) as client:
        assert "/logout" not in client.get("/experiments/running").text


# -- files --------------------------------------------------------------------------------------------------------------


def test_tables_have_every_figure_in_full(get: Any) -> None:
    found = ALL["running"]()
    answer = get("/experiments/running/scorecard.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(r["metric"], float(r["change"]), float(r["value"])) for r in rows] == [
        (r.metric, r.change, r.value) for r in found.table
    ]
    assert rows[-1]["low"] == ""
    for name, count in (("slices", len(found.slices)), ("hours", len(found.series)), ("days", len(found.days)),
                        ("arms", 2), ("sources", 2)):  # fmt: skip
        assert len(list(csv.reader(io.StringIO(get(f"/experiments/running/{name}.csv").text)))) == count + 1


def test_no_cell_is_a_formula(get: Any) -> None:
    cells = [c for n in ("scorecard", "slices", "arms", "days")
             for row in csv.reader(io.StringIO(get(f"/experiments/weird/{n}.csv").text)) for c in row]  # fmt: skip
    assert "'=cmd|' /C calc'!A0" in cells
    assert "'=control" in cells
    for cell in cells:
        assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
        assert not cell.startswith("-") or float(cell) < 0


def test_the_merged_state_is_one(get: Any) -> None:
    assert sm.from_bytes(get("/experiments/running/total.smet").content).compute() == pytest.approx(2 / 3)


@pytest.mark.slow
def test_pictures(get: Any) -> None:
    pytest.importorskip("matplotlib")
    for name in ("looks", "scorecard", "slices", "windows", "arms"):
        answer = get(f"/experiments/running/{name}.png")
        assert answer.content[:8] == b"\x89PNG\r\n\x1a\n", name


def test_pictures_without_matplotlib(get: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = get("/experiments/running/looks.png")
    assert (answer.status_code, "pip install" in answer.text) == (404, True)


def test_static_files_are_kept_for_ever_under_their_content(get: Any) -> None:
    found = tree(get("/").text)
    links = [n.attrs["href"] for n in found.all("link")] + [n.attrs["src"] for n in found.all("script")]
    assert len(links) == 5
    for link in links:
        answer = get(link)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert re.search(r"-[0-9a-f]{12}\.(css|js|svg)$", link)
    assert get("/").headers["cache-control"] == "private, no-store"
    assert "unsafe" not in POLICY


@pytest.mark.slow
def test_pages_are_small(get: Any) -> None:
    files = sum(len(get(link).content) for link in re.findall(r'"(/static/[^"]+)"', get("/").text))
    for name in ALL:
        for by in ("day", "hour"):
            page = get(f"/experiments/{name}?by={by}")
            assert len(page.content) + files < 200_000, (name, by, len(page.content), files)


@pytest.mark.slow
def test_a_month_by_the_hour_is_small_too() -> None:
    site = site_of()
    one = site.store.evaluations["three"]
    series = points(1, 720, tuple(a.arm for a in one.arms))
    site.store.evaluations["three"] = replace(one, series=series)
    with asked(site) as client:
        page = client.get("/experiments/three?by=hour").content
    assert 100_000 < len(page) < 165_000


# -- live ---------------------------------------------------------------------------------------------------------------


def test_a_stream_says_what_is_new_and_beats_while_nothing_is() -> None:
    site = site_of(beat=0.01)

    async def run() -> list[str]:
        board, found = site.board, []
        body = stream_events([board.subscribe("running"), board.subscribe("ship")], "1.0", 0.01).body_iterator
        async for text in body:
            found.append(str(text))
            if len(found) == 2:
                assert board.open == 2
                board.put(site.store.evaluations["ship"])
            if "data: 1780" in found[-1]:
                break
        await body.aclose()  # type: ignore[attr-defined]
        assert board.open == 0
        return found

    first, *beats, last = asyncio.run(run())
    assert first == "retry: 3000\nevent: look\ndata: 1.0\n\n"
    assert set(beats) == {": beat\n\n"}
    assert last == f"event: look\ndata: {site.store.evaluations['ship'].at!r}\n\n"


def test_a_stream_ends_with_the_board() -> None:
    async def run(board: FakeBoard) -> list[str]:
        async def ends() -> Any:
            for found in ():
                yield found

        return [str(text) async for text in stream_events([ends(), ends()], "1.0").body_iterator]

    assert len(asyncio.run(run(FakeBoard({})))) == 1


@pytest.mark.slow
def test_evaluations_of_tests_go_through_json() -> None:
    for made in ALL.values():
        found = made()
        assert Evaluation.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("state", "at", "expected"),
    [
        ("running", "2026-06-03T12", "day 3 of 14"),
        ("ended", "2026-06-03T12", "planned users reached, day 3 of 14"),
        ("ended", "2026-06-15T00", "ended, day 3 of 14"),
    ],
)
def test_the_page_says_why_an_experiment_is_over(state: str, at: str, expected: str) -> None:
    definition = {"start": "2026-06-01T00", "end": "2026-06-15T00"}
    found = replace(ALL["running"](), state=state, at=parse_hour(at) * float(HOUR), day=2.5)
    assert build_page(found, ExperimentHistory(definition=definition), View()).day == expected
