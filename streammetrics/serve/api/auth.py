"""Access tokens for workers, owners and readers; login sessions; and CSRF tokens for forms."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...errors import InvalidInputError

__all__ = ["OWNER", "READER", "Accounts", "Person", "hash_token", "issue_token"]

OWNER, READER = "@owner", "@reader"
"""Scopes of tokens that belong to the server, not to an experiment. Experiment IDs cannot begin with "@"."""
PREFIX = "smt_"
"""The first characters of every token, by which secret scanners recognize tokens in published code."""
CACHE_SECONDS = 5.0
"""Seconds for which tokens are cached. A revoked token may be accepted for this long."""
ROLES = (("owner", OWNER), ("reader", READER))
PROXY_KEY, PROXY_KEY_SECONDS = "key of proxy forms", 100 * 365 * 86_400.0
"""The name of the session entry with the key for `compute_proxy_csrf_token`, and its lifetime in seconds."""


class Person(NamedTuple):
    """The person or program that sent a request.

    `role` is "reader" or "owner", and `csrf_token` is the CSRF token of the session. A reader with `tags` sees only the
    experiments that have at least one of these tags.
    """

    name: str
    role: str
    csrf_token: str = ""
    tags: tuple[str, ...] = ()


def hash_token(token: str) -> str:
    """Return the hash of a token, which the store keeps in place of the token itself.

    A fast hash is safe here, because tokens are long random strings that cannot be guessed.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def issue_token(store: Any, scope: str, name: str, *, by: str, at: float, tags: Sequence[str] = ()) -> str:
    """Create a token and store its hash; the token itself is not stored.

    Parameters
    ----------
    store : Store
        The store that saves the hash.
    scope : str
        For a worker's token, the ID of the experiment to which it may post metrics; otherwise, `OWNER` or `READER`.
    name : str
        The name of the token in the audit log. The new token replaces an earlier token with the same name.
    by : str
        The person who creates the token, for the audit log.
    at : float
        The time of creation, in seconds since 1970.
    tags : sequence of str
        The tags to which the token of a reader is limited; if there are none, the token is valid for all experiments.
    """
    if not name.isprintable() or not 0 < len(name) <= 100:
        raise InvalidInputError(f"token name: expected 1 to 100 printable characters, found {name!r}")
    token = PREFIX + secrets.token_urlsafe(32)
    store.add_token(scope, hash_token(token), name, by=by, at=at, tags=tags)
    return token


class Accounts:
    """Tokens and sessions, checked against the hashes in a store.

    Parameters
    ----------
    store : Store
        The store that contains the hashes.
    seconds : float
        The duration of a session.
    clock : callable
        A function that returns the time, in seconds since 1970.
    """

    def __init__(self, store: Any, seconds: float, clock: Callable[[], float]) -> None:
        self.store, self.seconds, self.clock = store, seconds, clock
        self._cached_tokens: dict[str, tuple[float, dict[str, str]]] = {}
        self._cached_tags: tuple[float, dict[str, tuple[str, ...]]] = (float("-inf"), {})

    def _load_tokens(self, scope: str) -> dict[str, str]:
        """Return a dict, cached for a few seconds, that maps the hash of each token of a scope to the token's name.

        Callers must pass only IDs of existing experiments. Otherwise, requests with invented IDs could fill the cache.
        """
        expires_at, tokens = self._cached_tokens.get(scope, (float("-inf"), {}))
        if time.monotonic() < expires_at:
            return tokens
        tokens = {row.hashed: row.name for row in self.store.tokens(scope)}
        self._cached_tokens[scope] = (time.monotonic() + CACHE_SECONDS, tokens)
        return tokens

    def _find_tags(self, role: str, name: str) -> tuple[str, ...]:
        """Return the tags to which the token of a reader is limited; an empty tuple if there is no limit."""
        if time.monotonic() >= self._cached_tags[0]:
            self._cached_tags = time.monotonic() + CACHE_SECONDS, self.store.token_tags(READER)
        return self._cached_tags[1].get(name, ()) if role == "reader" else ()

    def find_name(self, scope: str, token: str) -> str | None:
        """Return the name of a token; None if the scope contains no such token."""
        # The look-up does not take constant time, so its duration could reveal something about the stored hashes. That
        # is harmless, because nobody can compute a token from its hash.
        return self._load_tokens(scope).get(hash_token(token))

    # -- readers ------------------------------------------------------------------------------------------------------

    def find_person(self, token: str) -> Person | None:
        """Return the owner or reader who has a token; None if the token is not valid."""
        return self._find_owner_or_reader(hash_token(token))

    def _find_owner_or_reader(self, digest: str, csrf_token: str = "") -> Person | None:
        for role, scope in ROLES:
            if (name := self._load_tokens(scope).get(digest)) is not None:
                return Person(name, role, csrf_token, self._find_tags(role, name))
        return None

    def create_session(self, token: str) -> str:
        """Start a session for the holder of a token, and return the session cookie.

        The session ends after `seconds`, at logout, or when the token is revoked.
        """
        # The store contains only hashes of cookies, so a copy of the store is not enough to forge a cookie.
        cookie, now = secrets.token_urlsafe(32), self.clock()
        self.store.add_session(hash_token(cookie), hash_token(token), expires_at=now + self.seconds, now=now)
        return cookie

    def read_session(self, cookie: str) -> Person | None:
        """Return the person to whom a session cookie belongs; None if the session has ended or never existed."""
        digest = self.store.find_session(hash_token(cookie), self.clock())
        return None if digest is None else self._find_owner_or_reader(digest, compute_csrf_token(cookie))

    def compute_proxy_csrf_token(self, name: str) -> str:
        """Return the CSRF token of a user who was logged in by a proxy and therefore has no session cookie.

        The token is computed from a random key, shared by all servers that use the store. The key gives no access by
        itself.
        """
        now = self.clock()
        if (key := self.store.find_session(PROXY_KEY, now)) is None:
            self.store.add_session(PROXY_KEY, secrets.token_hex(32), expires_at=now + PROXY_KEY_SECONDS, now=now)
            key = self.store.find_session(PROXY_KEY, now)
        return compute_csrf_token(f"{key} {name}")

    def end_session(self, cookie: str) -> None:
        """End a session on all servers that share the store. Copies of its cookie are then no longer valid."""
        self.store.delete_session(hash_token(cookie))


def compute_csrf_token(cookie: str) -> str:
    """Return the CSRF token of a session.

    Each form contains this secret value, which shows that the form comes from this server. The token can be computed
    only from the cookie, and the cookie cannot be computed from the token.
    """
    return hmac.new(cookie.encode("utf-8", "surrogateescape"), b"form", hashlib.sha256).hexdigest()
