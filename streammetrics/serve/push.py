"""Posting what was counted to a dashboard: the standard library alone, for workers."""

from __future__ import annotations

import email.utils
import json
import os
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from ..collect.metric_like import MetricLike
from ..errors import InvalidInputError, PushError
from .store.part_keys import HOUR, PartKey, hour_text, key_of

__all__ = ["checked_url", "push", "token_of"]

TOKEN = "STREAMMETRICS_TOKEN"
FIRST, LONGEST = 0.5, 60.0
"""Seconds before the first retry, and at most; each is about twice the one before."""
PATIENCE = 600.0
"""Seconds that a server may ask to be left alone."""
ANSWER = 1 << 16
CONFLICT = 409


class PushResponse(NamedTuple):
    """What a server said; status 0 if it could not be asked."""

    status: int
    said: str
    after: str | None = None

    @property
    def passes(self) -> bool:
        """Whether trying again may help."""
        return self.status in (0, 429) or self.status >= 500


def push(
    url: str,
    metrics: MetricLike | bytes,
    *,
    experiment: str,
    source: str,
    hour: int | str | datetime,
    seq: int = 0,
    token: str | None = None,
    retries: int = 8,
    timeout: float = 30.0,
) -> str:
    """Post what was counted in one hour to a dashboard (`streammetrics serve`).

    Parameters
    ----------
    url : str
        Of the server: https://dashboard.example.com.
    metrics : Sliced, or the bytes of one
        By arm: ``sm.Sliced(sm.Sharded([...], unit="user_id"), by=["arm", ...])``.
    experiment, source : str
        Whose rows they are, and who counted them. One source has one part an hour, or numbers them by `seq`.
    hour : str, int or datetime
        Of the rows, in UTC: "2026-06-01T09", hours since 1970, or a time with its zone.
    seq : int
        The number of the part.
    token : str, optional
        By default that of the environment, STREAMMETRICS_TOKEN.
    retries : int
        How often it is tried again where the server is away or busy: after half a second, then twice as long each time,
        or as long as the server says.
    timeout : float
        Seconds to wait for the server, each time.

    Returns
    -------
    str
        "stored", or "same" if that was there already: the same part may be posted any number of times, and counts once.

    Raises
    ------
    PushError
        The server refuses it, or could not be reached; what was posted before under this key counts.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.Sharded(sm.CTR(), unit="user_id"), by="arm")
    >>> arms = arms.update(y_true=[0, 1], user_id=[1, 2], arm=["old", "new"])
    >>> sm.push("http://127.0.0.1:9", arms, experiment="rank", source="job", hour="2026-06-01T09", token="-", retries=0)
    Traceback (most recent call last):
    streammetrics.errors.PushError: rank/2026-06-01T09/job-0 was not stored by http://127.0.0.1:9: Connection refused
    """
    key = key_of(experiment, source, _hour(hour), seq)
    data = metrics.to_bytes() if isinstance(metrics, MetricLike) else metrics
    if not isinstance(data, bytes):
        raise TypeError(f"push() takes metrics by arm, or their bytes, not a {type(metrics).__name__}")
    secret = token_of(token)
    address = _address(checked_url(url), key)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/octet-stream"}
    for attempt in range(retries + 1):
        answer = _post(address, data, headers, timeout)
        if answer.status in (200, 201):
            return answer.said
        if not answer.passes or attempt == retries:
            break
        time.sleep(_pause(attempt, answer.after))
    raise PushError(f"{key.text} was not stored by {url}: {answer.said}", status=answer.status)


def token_of(given: str | None) -> str:
    """Return a token that was given, or that of the environment."""
    token = ((os.environ.get(TOKEN) if given is None else given) or "").strip()  # files end in a newline
    if not token:
        raise InvalidInputError(f"pushing needs the token of a writer: {TOKEN} in the environment, or token=")
    if not (token.isascii() and token.isprintable()):  # who sends it would print it
        raise InvalidInputError(f"the token ({TOKEN} in the environment, or token=) has characters that no token has")
    return token


def checked_url(url: str) -> str:
    """Return the URL of a server, without its last stroke."""
    found = urlsplit(url)
    if (
        found.scheme not in ("http", "https")
        or not found.hostname
        or "@" in found.netloc
        or found.query
        or found.fragment
    ):
        raise InvalidInputError(
            "url is that of the server, such as https://dashboard.example.com, without token or query"
        )
    return url.rstrip("/")


def _hour(hour: int | str | datetime) -> int | str:
    if not isinstance(hour, datetime):
        return hour
    if hour.tzinfo is None:
        raise InvalidInputError(f"hour: {hour} has no zone; give it one, such as datetime.UTC")
    return hour_text(int(hour.astimezone(UTC).timestamp()) // HOUR)


def _address(url: str, key: PartKey) -> str:
    """Where a part is posted."""
    query = urlencode({"hour": hour_text(key.hour), "source": key.source, "seq": key.seq})
    return f"{url}/v1/experiments/{quote(key.experiment)}/states?{query}"


def _post(address: str, data: bytes, headers: Mapping[str, str], timeout: float) -> PushResponse:
    """Ask once. No redirection is followed: the token is for this server."""
    import http.client  # these two take longer to load than all of this package, and few processes push
    import urllib.error
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(address, data, dict(headers), method="POST")
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=timeout) as answer:
            return _read(answer.status, answer.read(ANSWER), answer.headers)
    except urllib.error.HTTPError as error:  # the caller reads the status
        with error:
            return _read(error.code, error.read(ANSWER), error.headers)
    except urllib.error.URLError as error:  # no answer: status 0
        reason = error.reason
        return PushResponse(0, getattr(reason, "strerror", None) or str(reason))
    except (OSError, http.client.HTTPException) as error:  # no answer: status 0
        return PushResponse(0, str(error) or type(error).__name__)


def _read(status: int, body: bytes, headers: Any) -> PushResponse:
    """What our server says; of a proxy in front, the status."""
    try:
        given = json.loads(body)
        said = str(given["state"] if status in (200, 201) else given["error"])
    except (ValueError, KeyError, TypeError):  # not what our server writes
        if status in (200, 201):
            return PushResponse(502, "what answers is not streammetrics serve")
        said = f"status {status}"
    return PushResponse(status, said, headers.get("Retry-After"))


def _pause(attempt: int, after: str | None) -> float:
    """Seconds until the next try: longer each time, and not all workers at once; at least what the server asks for."""
    grown = min(LONGEST, FIRST * 2.0**attempt) * random.uniform(0.5, 1.5)
    return max(grown, min(PATIENCE, _asked(after)) * random.uniform(1.0, 1.25))


def _asked(after: str | None) -> float:
    """What Retry-After says: seconds, or a date."""
    if after is None:
        return 0.0
    if after.strip().isdecimal():
        return float(after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except ValueError:  # no date: nothing is asked
        return 0.0
