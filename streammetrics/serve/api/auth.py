"""Tokens of writers, owners and readers, sessions in signed cookies, and CSRF tokens of forms."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from itsdangerous import BadData, URLSafeTimedSerializer

from ...errors import InvalidInputError

__all__ = ["OWNER", "READER", "Accounts", "Person", "hash_token", "issue_token"]

OWNER, READER, SESSION = "@owner", "@reader", "@session"
"""Scopes of tokens that belong to no experiment. IDs of experiments cannot begin with "@"."""
PREFIX = "smt_"
"""The beginning of every token, by which secret scanners recognise it."""
CACHE_SECONDS = 5.0
"""Seconds for which tokens are cached; a revoked token may still be accepted for so long."""
SHORT_DIGITS = 16


class Person(NamedTuple):
    """A person or program: the name, the role ("reader" or "owner"), and the CSRF token of the session."""

    name: str
    role: str
    csrf_token: str = ""


def hash_token(token: str) -> str:
    """Return the stored hash of a token. Tokens are long and random, so a fast hash is safe."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def issue_token(store: Any, scope: str, name: str, *, by: str, at: float) -> str:
    """Create a token and store its hash; the token itself is not stored.

    Parameters
    ----------
    store : Store
        The store that saves the hash.
    scope : str
        The ID of an experiment, whose parts the token may post; `OWNER` or `READER`.
    name : str
        The name in the audit log. The new token replaces an earlier one of this name.
    by : str
        Who creates the token, for the audit log.
    at : float
        The time, in seconds since 1970.
    """
    if not name.isprintable() or not 0 < len(name) <= 100:
        raise InvalidInputError(f"a token is named by at most 100 characters that can be printed, not {name!r}")
    token = PREFIX + secrets.token_urlsafe(32)
    store.add_token(scope, hash_token(token), name, by=by, at=at)
    return token


class Accounts:
    """Tokens and sessions, checked against the hashes in a store.

    Parameters
    ----------
    store : Store
        The store of the hashes.
    seconds : float
        The duration of a session.
    clock : callable
        Returns the time, in seconds since 1970.
    """

    def __init__(self, store: Any, seconds: float, clock: Callable[[], float]) -> None:
        self.store, self.seconds, self.clock = store, seconds, clock
        self._cached_tokens: dict[str, tuple[float, list[tuple[str, str]]]] = {}
        self._lock = threading.Lock()

    def _load_tokens(self, scope: str) -> list[tuple[str, str]]:
        """Return the hashes and names of a scope, cached for some seconds.

        Callers pass the IDs of existing experiments only, so that requests cannot make the cache grow.
        """
        expires_at, tokens = self._cached_tokens.get(scope, (float("-inf"), []))
        if time.monotonic() < expires_at:
            return tokens
        tokens = [(row.hashed, row.name) for row in self.store.tokens(scope)]
        self._cached_tokens[scope] = (time.monotonic() + CACHE_SECONDS, tokens)
        return tokens

    def find_name(self, scope: str, token: str) -> str | None:
        """Return the name of a token; None if the scope has no such token."""
        # The loop compares all hashes, each in constant time, so that the duration says nothing about the hashes.
        digest, name = hash_token(token), None
        for stored_digest, token_name in self._load_tokens(scope):
            if hmac.compare_digest(stored_digest, digest):
                name = token_name
        return name

    # -- readers ------------------------------------------------------------------------------------------------------

    def find_person(self, token: str) -> Person | None:
        """Return the owner or reader with a token."""
        for role, scope in (("owner", OWNER), ("reader", READER)):
            if (name := self.find_name(scope, token)) is not None:
                return Person(name, role)
        return None

    def create_session(self, token: str) -> str:
        """Return a signed session cookie for a token; it is valid until the token is revoked, at most `seconds`."""
        # The cookie has the first digits of the token's hash: revoking the token ends its sessions, and the cookie does
        # not contain the token. The random number separates the CSRF tokens of sessions.
        return str(self._build_signer("session").dumps([hash_token(token)[:SHORT_DIGITS], secrets.token_urlsafe(12)]))

    def read_session(self, cookie: str) -> Person | None:
        """Return the person of a session cookie; None if the cookie is not valid."""
        try:
            short, session = self._build_signer("session").loads(cookie, max_age=int(self.seconds))
        except (BadData, ValueError, TypeError):  # The signature is invalid, or the cookie has expired.
            return None
        for role, scope in (("owner", OWNER), ("reader", READER)):
            for digest, name in self._load_tokens(scope):
                if hmac.compare_digest(digest[:SHORT_DIGITS], str(short)):
                    return Person(name, role, self._compute_csrf_token(str(session)))
        return None

    def _compute_csrf_token(self, session: str) -> str:
        """Return the CSRF token of a session: a value that other sites cannot know."""
        return hmac.new(self._load_secret().encode(), f"form {session}".encode(), hashlib.sha256).hexdigest()

    def _build_signer(self, salt: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._load_secret(), salt=salt, signer_kwargs={"digest_method": hashlib.sha256})

    def _load_secret(self) -> str:
        """Return the key that signs cookies, which all servers of a store share."""
        # Two servers that start together may both add a key. All servers then read both and take the smaller one.
        with self._lock:
            if not (keys := self._load_tokens(SESSION)):
                name = f"key {secrets.token_hex(4)}"
                self.store.add_token(SESSION, secrets.token_hex(32), name, by="server", at=self.clock())
                self._cached_tokens.pop(SESSION, None)
                keys = self._load_tokens(SESSION)
        return min(keys)[0]
