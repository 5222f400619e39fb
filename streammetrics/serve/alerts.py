"""Post alerts to webhooks: one message when a fault of an experiment begins, and another when it ends.

The store saves active faults and undelivered messages, so a restart neither repeats nor loses a message.
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
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from .evaluation.evaluation import Evaluation
from .store import LeaseLostError
from .store.journal import Decision

__all__ = ["AlertStateStore", "Alerts", "Fault", "find_faults", "find_verdicts", "post_json"]

MAX_PENDING = 20  # the maximum number of undelivered messages per fault; if there are more, the oldest are dropped
MAX_AGE = 86400.0  # seconds after which an undelivered message is dropped
TIMEOUT = 5.0
DECISION_RECORDED = "decision recorded"
FINAL_DECISIONS = ("ship", "do not", "inconclusive")
FIRST_WAIT, LONGEST_WAIT = 1.0, 600.0  # seconds until the first and the last retry; the wait doubles after each failure
log = logging.getLogger(__name__)


class AlertStateStore(Protocol):
    """The store methods that `Alerts` needs. The store keeps the state of each fault as a string."""

    def alert_state(self, experiment: str) -> dict[str, str]:
        """Return the saved state of every fault in an experiment, keyed by `Fault.key`."""

    def set_alert_state(self, experiment: str, name: str, state: str, *, fence: int | None) -> None:
        """Save the state of the fault whose key is `name`.

        `fence` is the number of the lease under which this server evaluates the experiment. If another server has since
        taken the lease, LeaseLostError is raised. If `fence` is None, any server can save the state.
        """


class Fault(NamedTuple):
    """A problem with an experiment, or a verdict that decides the experiment.

    `alert` is the kind of problem or verdict, such as "guardrail breached". `about` contains labels, such as the
    treatment and the metric. `sentence` explains the problem or the verdict.
    """

    alert: str
    about: dict[str, str]
    sentence: str

    @property
    def key(self) -> str:
        """An identifier that stays the same while the fault lasts, so that later evaluations recognize the fault."""
        return json.dumps([self.alert, *self.about.values()])


def find_faults(evaluation: Evaluation) -> Iterator[Fault]:
    """Yield the faults of an experiment: breached guardrails, sample ratio mismatch, silent sources, conflicting parts.

    Examples
    --------
    >>> from streammetrics.serve.evaluation.evaluation import SourceStatus
    >>> silent = SourceStatus("web", None, 7200.0, 0, 0, [], 0, 0, {}, "silent")
    >>> [fault.sentence for fault in find_faults(Evaluation("ranker", "A ranker", 1, 0.0, "running", sources=[silent]))]
    ['web is silent: its next part is 2 hours overdue']
    """
    for row in evaluation.table:
        if row.role == "guardrail" and row.word == "breached":
            change = "" if row.change is None else f" with a change of {row.change:+.2%}"
            margin = "" if row.margin is None else f"; it may become worse by at most {100 * row.margin:.4g}%"
            text = f"{row.metric} of {row.treatment} breaches its guardrail{change}{margin}"
            yield Fault("guardrail breached", {"treatment": row.treatment, "metric": row.metric}, text)
    if evaluation.ratio is not None and evaluation.ratio.alarm:
        yield Fault("sample ratio", {}, evaluation.ratio.sentence)
    for source in evaluation.sources:
        if source.state == "silent":
            behind = "" if source.behind is None else f"{_format_duration(source.behind)} "
            text = f"{source.source} is silent: its next part is {behind}overdue"
            yield Fault("source silent", {"source": source.source}, text)
        if source.conflicts:
            text = f"{source.source} posted a part again with different content; an owner decides which part counts"
            yield Fault("conflict", {"source": source.source}, text)


def find_verdicts(evaluation: Evaluation) -> Iterator[Fault]:
    """Yield the verdicts that decide an experiment, as `Fault` objects, because they are announced like faults.

    Examples
    --------
    >>> from streammetrics.serve.evaluation.evaluation import TreatmentVerdict
    >>> verdicts = [TreatmentVerdict("new", "ship", "Ship new."), TreatmentVerdict("newer", "keep running", "Wait.")]
    >>> [one.about for one in find_verdicts(Evaluation("ranker", "A ranker", 1, 0.0, "running", verdicts=verdicts))]
    [{'treatment': 'new', 'verdict': 'ship'}]
    """
    for verdict in evaluation.verdicts:
        if verdict.decision in FINAL_DECISIONS:
            about = {"treatment": verdict.treatment, "verdict": verdict.decision}
            yield Fault("decided", about, verdict.sentence)


def _format_duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hour{'' if round(hours) == 1 else 's'}" if hours >= 1 else f"{seconds / 60:.0f} minutes"


def post_json(url: str, body: dict[str, Any]) -> None:
    """Post JSON to a URL; raise OSError unless the status is 2xx.

    Redirects are not followed, because they may lead to a URL that no owner has configured.
    """
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", "User-Agent": "streammetrics"}
    )
    with OPENER.open(request, timeout=TIMEOUT) as answer:
        answer.read(1024)


# Webhooks need only HTTP and HTTPS. The default opener would also open file URLs and follow redirects.
OPENER = urllib.request.OpenerDirector()
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
class _FaultState:
    """The saved state of a fault.

    `changes` counts how many times the fault has begun or ended. `message` is the last message, and `pending` contains
    the undelivered messages with their URLs.
    """

    changes: int = 0
    is_active: bool = False
    message: dict[str, Any] = field(default_factory=dict)
    pending: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the state as JSON, in the format of the store."""
        return json.dumps(
            {"changes": self.changes, "there": self.is_active, "begun": self.message, "pending": self.pending}
        )

    @classmethod
    def from_json(cls, text: str) -> _FaultState:
        """Read a state from the JSON that `to_json` returned."""
        fields = json.loads(text)
        pending = [(url, message) for url, message in fields["pending"]]
        return cls(fields["changes"], fields["there"], fields["begun"], pending)


class Alerts:
    """A service that posts a message to webhooks when a fault begins, and another when it ends.

    Parameters
    ----------
    store : AlertStateStore
        The store that saves the states of faults.
    send : callable
        A function that posts a message to a URL, or raises OSError.
    clock : callable
        A function that returns the time, in seconds since 1970.

    Notes
    -----
    `notify` saves the changes and returns immediately. A thread delivers the messages. If a URL fails, the thread tries
    again after 1 s, after another 2 s, and so on. It doubles the wait after each failure, up to ten minutes. The
    messages for a URL stay in order. Messages that cannot be delivered are dropped after a day. A URL that hangs delays
    the other URLs by at most five seconds per attempt. If there are several servers, only the one that holds the lease
    of an experiment sends the messages about it. After a crash, or when the lease changes hands, a message may arrive
    twice with the same `id`.
    """

    def __init__(
        self,
        store: AlertStateStore,
        *,
        send: Callable[[str, dict[str, Any]], None] = post_json,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._send, self._clock = store, send, clock
        self._states: dict[tuple[str, str], _FaultState] = {}
        self._fences: dict[str, int] = {}
        self._lock, self._wake, self._stopped = threading.Lock(), threading.Event(), False
        # For each URL whose last post failed: the seconds between that post and the next try, and the time of the next
        # try.
        self._waits: dict[str, tuple[float, float]] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that delivers messages."""
        self._thread = threading.Thread(target=self._deliver, name="streammetrics-alerts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; undelivered messages stay in the store."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2 * TIMEOUT)

    def take(self, experiment: str, fence: int) -> None:
        """Start sending the messages about an experiment, including messages that are still undelivered.

        `fence` is the number of the lease, which gives this server the exclusive right to evaluate the experiment.
        """
        with self._lock:
            self._fences[experiment] = fence
            self._load(experiment)
        self._wake.set()

    def drop(self, experiment: str) -> None:
        """Stop sending messages about an experiment, because another server now sends them."""
        with self._lock:
            self._forget(experiment)

    def _forget(self, experiment: str) -> None:
        self._fences.pop(experiment, None)
        self._states = {key: state for key, state in self._states.items() if key[0] != experiment}

    def notify(self, evaluation: Evaluation, webhooks: Sequence[str]) -> None:
        """Queue a message to all URLs in `webhooks` for each fault or verdict that is new or no longer applies."""
        now = {fault.key: fault for fault in (*find_faults(evaluation), *find_verdicts(evaluation))}
        with self._lock:
            states = self._load(evaluation.experiment)
            for key in now.keys() - {k for k, state in states.items() if state.is_active}:
                self._record_change(
                    evaluation, key, states.get(key, _FaultState()), _build_message(evaluation, now[key]), webhooks
                )
            for key, state in states.items():
                if state.is_active and key not in now:
                    self._record_change(
                        evaluation, key, state, _build_end_message(state.message, evaluation.at), webhooks
                    )
        self._wake.set()

    def announce_decision(self, evaluation: Evaluation, decision: Decision, webhooks: Sequence[str]) -> None:
        """Queue a message to all URLs in `webhooks` about a decision that an owner has recorded."""
        about = {"arm": decision.arm, "by": decision.by, "number": str(decision.number)}
        fault = Fault(DECISION_RECORDED, about, f"{decision.by} decided for {decision.arm}: {decision.reason}")
        message = _build_message(evaluation, fault) | {"at": decision.at, "since": decision.at, "state": "over"}
        with self._lock:
            self._record_change(evaluation, fault.key, _FaultState(), message, webhooks)
        self._wake.set()

    def _record_change(
        self, evaluation: Evaluation, key: str, previous: _FaultState, message: dict[str, Any], webhooks: Sequence[str]
    ) -> None:
        # The ID is a hash that depends only on the experiment, the fault and its number of changes. Two servers
        # therefore send the same ID for the same change.
        identity = json.dumps([evaluation.experiment, key, previous.changes + 1])
        message = {"id": hashlib.sha256(identity.encode()).hexdigest()[:32]} | message
        pending = [*previous.pending, *((url, message) for url in webhooks)]
        if len(pending) > MAX_PENDING:
            log.error(
                "%s: dropped %d alerts that no webhook accepted", evaluation.experiment, len(pending) - MAX_PENDING
            )
        is_active = message["state"] == "begun"
        self._save(
            evaluation.experiment, key, _FaultState(previous.changes + 1, is_active, message, pending[-MAX_PENDING:])
        )

    def _load(self, experiment: str) -> dict[str, _FaultState]:
        """Load the fault states of an experiment from the store, and return them.

        The states in memory may be out of date, because another server may have changed the saved states.
        """
        states = {key: _FaultState.from_json(text) for key, text in self._store.alert_state(experiment).items()}
        self._states |= {(experiment, key): state for key, state in states.items()}
        return states

    def _save(self, experiment: str, key: str, state: _FaultState) -> None:
        # Any server may record a decision, even if it does not hold the lease. It then also delivers the message. For a
        # decision, the number of the lease (`fence`) is therefore not checked.
        is_decision = state.message.get("alert") == DECISION_RECORDED
        fence = None if is_decision else self._fences.get(experiment, 0)
        self._store.set_alert_state(experiment, key, state.to_json(), fence=fence)
        self._states[experiment, key] = state

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while not self._stopped:
            self._wake.clear()
            try:
                wait = self._deliver_due()
            # If an error ended this thread, later messages would never be delivered. The error is therefore only
            # logged.
            except Exception:
                log.exception("alerts could not be saved; the server will try again")
                wait = LONGEST_WAIT / 10
            self._wake.wait(wait)

    def _deliver_due(self) -> float | None:
        """Try to send all messages that are due.

        Return the seconds until the next message is due; None if no message is waiting for a retry.
        """
        for of, url, message in self._list_pending():
            if self._stopped:
                return None
            if time.monotonic() >= self._waits.get(url, (0.0, 0.0))[1]:
                self._try_delivery(of, url, message)
        waits = [self._waits[url][1] for _, url, _ in self._list_pending() if url in self._waits]
        return max(min(waits) - time.monotonic(), 0.01) if waits else None

    def _list_pending(self) -> list[tuple[tuple[str, str], str, dict[str, Any]]]:
        with self._lock:
            return [(of, url, message) for of, state in self._states.items() for url, message in state.pending]

    def _try_delivery(self, key: tuple[str, str], url: str, message: dict[str, Any]) -> None:
        try:
            self._send(url, message)
        except (OSError, ValueError, http.client.HTTPException) as error:
            wait = min(2 * self._waits[url][0], LONGEST_WAIT) if url in self._waits else FIRST_WAIT
            self._waits[url] = wait, time.monotonic() + wait
            # Only the host is logged, because the path of a webhook URL is often a secret.
            host = urlsplit(url).hostname
            log.warning("%s: the webhook at %s did not accept an alert: %s", key[0], host, type(error).__name__)
            if self._clock() - message["at"] < MAX_AGE:
                return
            log.error("%s: dropped an alert that the webhook did not accept within a day: %s", key[0], message["text"])
        else:
            self._waits.pop(url, None)
        with self._lock:
            if (state := self._states.get(key)) is None:
                return
            remaining = [one for one in state.pending if one != (url, message)]
            try:
                self._save(*key, replace(state, pending=remaining))
            # Another server has taken the lease, and sends the remaining messages.
            except LeaseLostError:
                self._forget(key[0])


def _build_message(evaluation: Evaluation, fault: Fault) -> dict[str, Any]:
    """Return the message to post when a fault begins."""
    return {
        "experiment": evaluation.experiment,
        "title": evaluation.title,
        "alert": fault.alert,
        "state": "begun",
        "about": fault.about,
        "text": f"{evaluation.title}: {fault.sentence}",
        "at": evaluation.at,
        "since": evaluation.at,
    }


def _build_end_message(message: dict[str, Any], at: float) -> dict[str, Any]:
    fields = {name: value for name, value in message.items() if name != "id"}
    return fields | {"state": "over", "text": f"Over: {message['text']}", "at": at}
