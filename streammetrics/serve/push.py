"""Post the metrics of one hour to a dashboard. This module needs only the standard library."""

from __future__ import annotations

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
from .part_keys import HOUR, PartKey, format_hour, parse_key

__all__ = ["normalize_url", "push", "read_token"]

TOKEN_VARIABLE = "STREAMMETRICS_TOKEN"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""The pause before the first retry, and the longest pause, in seconds. The pause roughly doubles after each try."""
MAX_RETRY_AFTER = 600.0
"""The longest pause, in seconds, that the server can ask for with the Retry-After header."""
MAX_ANSWER_BYTES = 1 << 16
CONFLICT = 409


class PushResponse(NamedTuple):
    """The HTTP status and message of a server's response; the status is 0 if the server did not respond."""

    status: int
    message: str
    retry_after: str | None = None

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may help, because the server did not respond, was busy or had an internal error."""
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
    """Post the metrics of one hour to a dashboard (`streammetrics serve`).

    Parameters
    ----------
    url : str
        The URL of the server, such as https://dashboard.example.com.
    metrics : Sliced or bytes
        The metrics by arm, such as ``sm.Sliced(sm.Sharded([...], unit="user_id"), by=["arm", ...])``, or their bytes.
    experiment, source : str
        The ID of the experiment, and the name of the worker that counted the rows. A source posts one part per hour, or
        several parts with different `seq`.
    hour : str, int or datetime
        The hour of the rows in UTC: a string such as "2026-06-01T09", hours since 1970, or a datetime with a time zone.
    seq : int
        The number of the part within its hour.
    token : str, optional
        The token of a worker; by default, the value of the environment variable STREAMMETRICS_TOKEN.
    retries : int
        The number of retries while the server is down or busy. The first pause lasts half a second, and each later one
        about twice as long as the previous one, up to a minute. A pause is longer if the server requests it.
    timeout : float
        The number of seconds to wait for the server on each try.

    Returns
    -------
    str
        "stored", or "same" if the part was already stored. A part can be posted any number of times but counts once.

    Raises
    ------
    PushError
        The server refused the part or could not be reached. A part posted earlier under the same key still counts.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.Sharded(sm.CTR(), unit="user_id"), by="arm")
    >>> arms = arms.update(y_true=[0, 1], user_id=[1, 2], arm=["old", "new"])
    >>> sm.push("http://127.0.0.1:9", arms, experiment="rank", source="job", hour="2026-06-01T09", token="-", retries=0)
    Traceback (most recent call last):
    streammetrics.errors.PushError: rank/2026-06-01T09/job-0 was not stored by http://127.0.0.1:9: Connection refused
    """
    key = parse_key(experiment, source, _convert_hour(hour), seq)
    data = metrics.to_bytes() if isinstance(metrics, MetricLike) else metrics
    if not isinstance(data, bytes):
        raise TypeError(
            f"metrics: expected metrics sliced by arm, or their bytes, found an object of class {type(metrics).__name__}"
        )
    secret = read_token(token)
    address = _build_address(normalize_url(url), key)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/octet-stream"}
    for attempt in range(retries + 1):
        answer = _post_once(address, data, headers, timeout)
        if answer.status in (200, 201):
            return answer.message
        if not answer.is_retryable or attempt == retries:
            break
        time.sleep(_compute_pause(attempt, answer.retry_after))
    raise PushError(f"{key.text} was not stored by {url}: {answer.message}", status=answer.status)


def read_token(token: str | None) -> str:
    """Return the token; if `token` is None, return the token in the environment variable STREAMMETRICS_TOKEN.

    Raises
    ------
    InvalidInputError
        The token is missing or malformed.
    """
    # Strip whitespace, because a token that was read from a file may end with a newline.
    token = ((os.environ.get(TOKEN_VARIABLE) if token is None else token) or "").strip()
    if not token:
        raise InvalidInputError(
            f"the token of a worker is missing; create one with 'streammetrics serve token EXPERIMENT', and set "
            f"{TOKEN_VARIABLE} in the environment, or pass token="
        )
    # Refuse a token that is not printable ASCII, because http.client would show it in its error message.
    if not (token.isascii() and token.isprintable()):
        raise InvalidInputError(
            f"the token must contain only printable ASCII characters; check {TOKEN_VARIABLE} in the environment, "
            f"or token="
        )
    return token


def normalize_url(url: str) -> str:
    """Return the URL of a server without trailing slashes.

    Raises
    ------
    InvalidInputError
        The string is not the URL of a server, or it contains a username, a password, a query or a fragment.
    """
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise InvalidInputError(
            "url: expected the URL of the server, such as https://dashboard.example.com, without token or query"
        )
    return url.rstrip("/")


def _convert_hour(hour: int | str | datetime) -> int | str:
    if not isinstance(hour, datetime):
        return hour
    if hour.tzinfo is None:
        raise InvalidInputError(
            f"hour: expected a time with a time zone, found {hour}; add tzinfo=datetime.UTC if the time is in UTC"
        )
    return format_hour(int(hour.astimezone(UTC).timestamp()) // HOUR)


def _build_address(url: str, key: PartKey) -> str:
    """Return the URL to which a part is posted."""
    query = urlencode({"hour": format_hour(key.hour), "source": key.source, "seq": key.seq})
    return f"{url}/v1/experiments/{quote(key.experiment)}/states?{query}"


def _post_once(address: str, data: bytes, headers: Mapping[str, str], timeout: float) -> PushResponse:
    """Post data once and return the response.

    Redirects are not followed, because no other server may see the token.
    """
    # Import these modules here, because they take longer to import than this package does, and most processes never
    # post metrics.
    import http.client
    import urllib.error
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(address, data, dict(headers), method="POST")
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=timeout) as answer:
            return _parse_response(answer.status, answer.read(MAX_ANSWER_BYTES), answer.headers)
    # urllib raises this error for an error status such as 404. The caller checks the status of the response.
    except urllib.error.HTTPError as error:
        with error:
            return _parse_response(error.code, error.read(MAX_ANSWER_BYTES), error.headers)
    # Status 0 tells the caller that the server did not respond.
    except urllib.error.URLError as error:
        reason = error.reason
        return PushResponse(0, getattr(reason, "strerror", None) or str(reason))
    # Status 0 tells the caller that the server did not respond.
    except (OSError, http.client.HTTPException) as error:
        return PushResponse(0, str(error) or type(error).__name__)


def _parse_response(status: int, body: bytes, headers: Any) -> PushResponse:
    """Return the response with the server's message.

    If another server or a proxy reports success, the status is replaced with an error status. For any other status that
    it reports, the message contains only the status code.
    """
    try:
        fields = json.loads(body)
        message = str(fields["state"] if status in (200, 201) else fields["error"])
    # The body is not in the format of a dashboard, so another server or a proxy answered.
    except (ValueError, KeyError, TypeError):
        if status in (200, 201):
            return PushResponse(502, "the server is not a streammetrics dashboard; check the URL")
        message = f"HTTP status {status}"
    return PushResponse(status, message, headers.get("Retry-After"))


def _compute_pause(attempt: int, retry_after: str | None) -> float:
    """Return the number of seconds until the next try.

    The pause doubles with each attempt (exponential backoff), up to about `LONGEST_PAUSE` seconds. It is at least as
    long as the server requests, but requests for more than `MAX_RETRY_AFTER` seconds are reduced to that limit. A
    random factor spreads the retries of many workers over time.
    """
    backoff = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**attempt) * random.uniform(0.5, 1.5)
    return max(backoff, min(MAX_RETRY_AFTER, _parse_retry_after(retry_after)) * random.uniform(1.0, 1.25))


def _parse_retry_after(retry_after: str | None) -> float:
    """Return the seconds to wait according to a Retry-After header (number or date); 0 if it is missing or invalid."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    # Import this function here, because a module-level import would make `import streammetrics` 5 % slower.
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    # A header that is neither a number nor a date is ignored.
    except ValueError:
        return 0.0
