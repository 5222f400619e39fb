"""What must not wait until somebody looks: posted to webhooks, once when it begins and once when it is over.

What is going on, and what is not delivered yet, is kept in the store: a restart tells nothing twice and forgets nothing.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from .evaluation.evaluation import Evaluation

__all__ = ["AlertStates", "Alerts", "Fault", "faults", "post"]

PENDING = 20  # messages of a fault that comes and goes while nobody takes them; the oldest go first
OLDEST = 86400.0  # seconds after which a message that nobody takes is given up
TIMEOUT = 5.0
FIRST_WAIT, LONGEST_WAIT = 1.0, 600.0  # between tries, doubled each time
log = logging.getLogger(__name__)


class AlertStates(Protocol):
    """What alerts need of a store."""

    def alert_state(self, experiment: str) -> dict[str, str]:
        """Return what was kept, by name."""

    def set_alert_state(self, experiment: str, name: str, state: str) -> bool:
        """Keep it."""


class Fault(NamedTuple):
    """One thing that is wrong: its kind, what it is about, and the sentence that says it."""

    alert: str
    about: dict[str, str]
    sentence: str

    @property
    def key(self) -> str:
        """The same as long as it is the same fault."""
        return json.dumps([self.alert, *self.about.values()])


def faults(found: Evaluation) -> Iterator[Fault]:
    """Yield what is wrong with an experiment.

    Examples
    --------
    >>> from streammetrics.serve.evaluation.evaluation import SourceStatus
    >>> silent = SourceStatus("web", None, 7200.0, 0, 0, [], 0, 0, {}, "silent")
    >>> [fault.sentence for fault in faults(Evaluation("ranker", "A ranker", 1, 0.0, "running", sources=[silent]))]
    ['web is silent: nothing came of it for 2 hours longer than expected']
    """
    for row in found.table:
        if row.role == "guardrail" and row.word == "breached":
            change = "" if row.change is None else f": {row.change:+.2%}"
            margin = "" if row.margin is None else f", {row.margin:.4g} is allowed"
            text = f"{row.metric} of {row.treatment} broke its guardrail{change}{margin}"
            yield Fault("guardrail broken", {"treatment": row.treatment, "metric": row.metric}, text)
    if found.ratio is not None and found.ratio.alarm:
        yield Fault("sample ratio", {}, found.ratio.sentence)
    for source in found.sources:
        if source.state == "silent":
            behind = "" if source.behind is None else f" for {_hours(source.behind)} longer than expected"
            text = f"{source.source} is silent: nothing came of it{behind}"
            yield Fault("source silent", {"source": source.source}, text)
        if source.conflicts:
            text = f"{source.source} posted again what it had posted, with other content; an owner may accept it"
            yield Fault("conflict", {"source": source.source}, text)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hour{'' if round(hours) == 1 else 's'}" if hours >= 1 else f"{seconds / 60:.0f} minutes"


def post(url: str, body: dict[str, Any]) -> None:
    """Post JSON; raise OSError unless the answer is 2xx. Redirects are no delivery: nobody said to send it elsewhere."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", "User-Agent": "streammetrics"}
    )
    with OPENER.open(request, timeout=TIMEOUT) as answer:
        answer.read(1024)


OPENER = urllib.request.OpenerDirector()  # with HTTP alone: no files, no other protocols, no redirects
for handler in (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
):
    OPENER.add_handler(handler())


@dataclass(frozen=True)
class _State:
    """Of a fault: how often it began or ended, whether it is there, and what is to be delivered: (url, message)."""

    changes: int = 0
    there: bool = False
    begun: dict[str, Any] = field(default_factory=dict)
    pending: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def of_json(cls, text: str) -> _State:
        given = json.loads(text)
        return cls(**given | {"pending": [(url, message) for url, message in given["pending"]]})


class Alerts:
    """Tell webhooks what begins to be wrong, and what is over.

    Parameters
    ----------
    store : AlertStates
        Where it is kept what was told.
    send : callable
        Posts a body to a URL, or raises OSError.
    clock : callable
        The time, in seconds since 1970.

    Notes
    -----
    `tell` compares, keeps and returns; a thread delivers. A URL that fails is tried again after 1 s, then 2, up to ten
    minutes; its messages stay in order, and after a day they are given up. One that hangs holds up the others for five
    seconds a try at most. What is delivered in the moment of a crash, or by two servers, comes twice with the same `id`.
    """

    def __init__(
        self,
        store: AlertStates,
        *,
        send: Callable[[str, dict[str, Any]], None] = post,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._send, self._clock = store, send, clock
        self._states: dict[tuple[str, str], _State] = {}
        self._lock, self._wake, self._stopped = threading.Lock(), threading.Event(), False
        self._waits: dict[str, tuple[float, float]] = {}  # by URL: how long, and until when
        self._thread: threading.Thread | None = None

    def start(self, experiments: Sequence[str] = ()) -> None:
        """Begin to deliver, first of all what of these experiments is pending."""
        for experiment in experiments:
            self._load(experiment)
        self._thread = threading.Thread(target=self._deliver, name="streammetrics-alerts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; what is pending is kept for the next start."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2 * TIMEOUT)

    def tell(self, found: Evaluation, webhooks: Sequence[str]) -> None:
        """Compare what is wrong with what was; put what changed in the queue."""
        now = {fault.key: fault for fault in faults(found)}
        with self._lock:
            known = self._load(found.experiment)
            for key in now.keys() - {k for k, state in known.items() if state.there}:
                self._change(found, key, known.get(key, _State()), _begun(found, now[key]), webhooks)
            for key, state in known.items():
                if state.there and key not in now:
                    self._change(found, key, state, _over(state.begun, found.at), webhooks)
        self._wake.set()

    def _change(
        self, found: Evaluation, key: str, old: _State, message: dict[str, Any], webhooks: Sequence[str]
    ) -> None:
        said = json.dumps([found.experiment, key, old.changes + 1])
        message = {"id": hashlib.sha256(said.encode()).hexdigest()[:32]} | message
        pending = [*old.pending, *((url, message) for url in webhooks)]
        if len(pending) > PENDING:
            log.error("%s: %d alerts that no webhook took are given up", found.experiment, len(pending) - PENDING)
        there = message["state"] == "begun"
        self._keep(found.experiment, key, _State(old.changes + 1, there, message, pending[-PENDING:]))

    def _load(self, experiment: str) -> dict[str, _State]:
        """Read what the store has: another server may have told it."""
        known = {key: _State.of_json(text) for key, text in self._store.alert_state(experiment).items()}
        self._states |= {(experiment, key): state for key, state in known.items()}
        return known

    def _keep(self, experiment: str, key: str, state: _State) -> None:
        self._store.set_alert_state(experiment, key, json.dumps(asdict(state)))
        self._states[experiment, key] = state

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while not self._stopped:
            self._wake.clear()
            try:
                wait = self._round()
            except Exception:  # whatever it is, alerts go on
                log.exception("alerts could not be kept; they are tried again")
                wait = LONGEST_WAIT / 10
            self._wake.wait(wait)

    def _round(self) -> float | None:
        """Try everything that is due; return seconds until something is."""
        for of, url, message in self._open():
            if self._stopped:
                return None
            if time.monotonic() >= self._waits.get(url, (0.0, 0.0))[1]:
                self._try(of, url, message)
        waits = [self._waits[url][1] for _, url, _ in self._open() if url in self._waits]
        return max(min(waits) - time.monotonic(), 0.01) if waits else None

    def _open(self) -> list[tuple[tuple[str, str], str, dict[str, Any]]]:
        with self._lock:
            return [(of, url, message) for of, state in self._states.items() for url, message in state.pending]

    def _try(self, of: tuple[str, str], url: str, message: dict[str, Any]) -> None:
        try:
            self._send(url, message)
        except (OSError, ValueError, http.client.HTTPException) as error:
            wait = min(2 * self._waits[url][0], LONGEST_WAIT) if url in self._waits else FIRST_WAIT
            self._waits[url] = wait, time.monotonic() + wait
            host = urlsplit(url).hostname  # what follows it is often a secret
            log.warning("%s: the webhook at %s did not take an alert: %s", of[0], host, type(error).__name__)
            if self._clock() - message["at"] < OLDEST:
                return
            log.error("%s: the alert is given up: %s", of[0], message["text"])
        else:
            self._waits.pop(url, None)
        with self._lock:
            state = self._states[of]
            left = [one for one in state.pending if one != (url, message)]
            self._keep(*of, replace(state, pending=left))


def _begun(found: Evaluation, fault: Fault) -> dict[str, Any]:
    """What is posted."""
    return {
        "experiment": found.experiment,
        "title": found.title,
        "alert": fault.alert,
        "state": "begun",
        "about": fault.about,
        "text": f"{found.title}: {fault.sentence}",
        "at": found.at,
        "since": found.at,
    }


def _over(begun: dict[str, Any], at: float) -> dict[str, Any]:
    told = {name: value for name, value in begun.items() if name != "id"}
    return told | {"state": "over", "text": f"Over: {begun['text']}", "at": at}
