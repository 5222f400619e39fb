"""Tokens for workers, owners and readers, sessions in signed cookies, and CSRF tokens of forms."""

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
"""Scopes of tokens that belong to the server, not to an experiment. Experiment IDs cannot begin with "@"."""
PREFIX = "smt_"
"""The first characters of every token, by which secret scanners recognise tokens in published code."""
CACHE_SECONDS = 5.0
"""Seconds for which tokens are cached. A revoked token may be accepted for this long."""
SHORT_DIGITS = 16


class Person(NamedTuple):
    """The person or program that sent a request.

    `role` is "reader" or "owner", and `csrf_token` is the CSRF token of the session.
    """

    name: str
    role: str
    csrf_token: str = ""


def hash_token(token: str) -> str:
    """Return the hash of a token, which the store keeps in place of the token itself.

    A fast hash is safe here, because tokens are long random strings that cannot be guessed.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def issue_token(store: Any, scope: str, name: str, *, by: str, at: float) -> str:
    """Create a token and store its hash; the token itself is not stored.

    Parameters
    ----------
    store : Store
        The store that saves the hash.
    scope : str
        The ID of an experiment whose parts the token may post, or `OWNER` or `READER`.
    name : str
        The name in the audit log. The new token replaces an earlier one with this name.
    by : str
        Who creates the token, for the audit log.
    at : float
        The time, in seconds since 1970.
    """
    if not name.isprintable() or not 0 < len(name) <= 100:
        raise InvalidInputError(f"token name: expected 1 to 100 printable characters, found {name!r}")
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
        """Return pairs of hash and name for all tokens of a scope, cached for a few seconds.

        Callers must pass only IDs of existing experiments. Otherwise, requests with invented IDs could fill the cache.
        """
        expires_at, tokens = self._cached_tokens.get(scope, (float("-inf"), []))
        if time.monotonic() < expires_at:
            return tokens
        tokens = [(row.hashed, row.name) for row in self.store.tokens(scope)]
        self._cached_tokens[scope] = (time.monotonic() + CACHE_SECONDS, tokens)
        return tokens

    def find_name(self, scope: str, token: str) -> str | None:
        """Return the name of a token; None if the scope has no such token."""
        # Every hash is compared, each in constant time. The time that this takes therefore reveals nothing about the
        # stored hashes.
        digest, name = hash_token(token), None
        for stored_digest, token_name in self._load_tokens(scope):
            if hmac.compare_digest(stored_digest, digest):
                name = token_name
        return name

    # -- readers ------------------------------------------------------------------------------------------------------

    def find_person(self, token: str) -> Person | None:
        """Return the owner or reader who has a token; None if the token is not valid."""
        for role, scope in (("owner", OWNER), ("reader", READER)):
            if (name := self.find_name(scope, token)) is not None:
                return Person(name, role)
        return None

    def create_session(self, token: str) -> str:
        """Return a signed session cookie for a token.

        The cookie is valid for `seconds`, or until the token is revoked.
        """
        # The cookie contains the first digits of the token's hash. The cookie does not reveal the token, and becomes
        # invalid when the token is revoked. The random number gives each session its own CSRF token.
        return str(self._build_signer("session").dumps([hash_token(token)[:SHORT_DIGITS], secrets.token_urlsafe(12)]))

    def read_session(self, cookie: str) -> Person | None:
        """Return the person to whom a session cookie belongs; None if the cookie is not valid."""
        try:
            short, session = self._build_signer("session").loads(cookie, max_age=int(self.seconds))
        # The signature is invalid, or the cookie has expired.
        except (BadData, ValueError, TypeError):
            return None
        for role, scope in (("owner", OWNER), ("reader", READER)):
            for digest, name in self._load_tokens(scope):
                if hmac.compare_digest(digest[:SHORT_DIGITS], str(short)):
                    return Person(name, role, self._compute_csrf_token(str(session)))
        return None

    def _compute_csrf_token(self, session: str) -> str:
        """Return the CSRF token of a session.

        Each form contains this secret value, which shows that the form comes from this server.
        """
        return hmac.new(self._load_secret().encode(), f"form {session}".encode(), hashlib.sha256).hexdigest()

    def _build_signer(self, salt: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._load_secret(), salt=salt, signer_kwargs={"digest_method": hashlib.sha256})

    def _load_secret(self) -> str:
        """Return the secret key that signs cookies. All servers that use the same store share it."""
        # Two servers that start at the same time may each add a key. They then agree on the smaller of the two keys.
        with self._lock:
            if not (keys := self._load_tokens(SESSION)):
                name = f"key {secrets.token_hex(4)}"
                self.store.add_token(SESSION, secrets.token_hex(32), name, by="server", at=self.clock())
                self._cached_tokens.pop(SESSION, None)
                keys = self._load_tokens(SESSION)
        return min(keys)[0]
