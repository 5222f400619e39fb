"""Who may do what: tokens of writers and owners, logins of readers, sessions in signed cookies, forms that are ours."""

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

__all__ = ["OWNER", "READER", "Accounts", "Person", "digest_of", "issue"]

OWNER, READER, SESSION = "@owner", "@reader", "@session"
"""Under what tokens are kept that are of no experiment: no experiment is called so."""
PREFIX = "smt_"
"""How tokens begin, so that those who look for secrets in code find them."""
KEPT = 5.0
"""Seconds for which tokens that were looked up hold: so long after it was revoked, one may still be taken."""
SHORT = 16


class Person(NamedTuple):
    """Who reads: a name, "reader" or "owner", and what forms of this session carry."""

    name: str
    role: str
    form: str = ""


def digest_of(token: str) -> str:
    """Return what is kept of a token. It is random and long, so that nothing slower is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def issue(store: Any, whose: str, name: str, *, by: str, at: float) -> str:
    """Make a token, of an experiment's writers, of owners or of readers; it is shown once, and its hash is kept.

    Parameters
    ----------
    store : Store
        Where it is kept.
    whose : str
        An experiment, `OWNER` or `READER`.
    name : str
        Who has it: what the audit says. One that had this name before is no longer good.
    by : str
        Who makes it.
    at : float
        When: seconds since 1970.
    """
    if not name.isprintable() or not 0 < len(name) <= 100:
        raise InvalidInputError(f"a token is named by at most 100 characters that can be printed, not {name!r}")
    token = PREFIX + secrets.token_urlsafe(32)
    store.add_token(whose, digest_of(token), name, by=by, at=at)
    return token


class Accounts:
    """Tokens and sessions, looked up in a store.

    Parameters
    ----------
    store : Store
        Keeps the hashes.
    seconds : float
        How long a session lasts.
    clock : function
        Seconds.
    """

    def __init__(self, store: Any, seconds: float, clock: Callable[[], float]) -> None:
        self.store, self.seconds, self.clock = store, seconds, clock
        self._known: dict[str, tuple[float, list[tuple[str, str]]]] = {}
        self._lock = threading.Lock()

    def _tokens(self, whose: str) -> list[tuple[str, str]]:
        """Hashes and names, of an experiment that there is: what is kept here grows with those alone."""
        until, found = self._known.get(whose, (float("-inf"), []))
        if time.monotonic() < until:
            return found
        found = [(row.hashed, row.name) for row in self.store.tokens(whose)]
        self._known[whose] = (time.monotonic() + KEPT, found)
        return found

    def name_of(self, whose: str, token: str) -> str | None:
        """Return whose token it is; None if it is nobody's. All are compared, each in constant time."""
        given, name = digest_of(token), None
        for kept, who in self._tokens(whose):
            if hmac.compare_digest(kept, given):
                name = who
        return name

    # -- readers ------------------------------------------------------------------------------------------------------

    def person(self, token: str) -> Person | None:
        """Return who logs in with a token."""
        for role, whose in (("owner", OWNER), ("reader", READER)):
            if (name := self.name_of(whose, token)) is not None:
                return Person(name, role)
        return None

    def session(self, token: str) -> str:
        """Return a cookie for who has this token: it holds until the token is revoked, and at most `seconds`."""
        return str(self._signer("session").dumps([digest_of(token)[:SHORT], secrets.token_urlsafe(12)]))

    def of_session(self, cookie: str) -> Person | None:
        """Return whose cookie it is."""
        try:
            short, number = self._signer("session").loads(cookie, max_age=int(self.seconds))
        except (BadData, ValueError, TypeError):  # not signed by us, or too old: nobody
            return None
        for role, whose in (("owner", OWNER), ("reader", READER)):
            for kept, name in self._tokens(whose):
                if hmac.compare_digest(kept[:SHORT], str(short)):
                    return Person(name, role, self._form(str(number)))
        return None

    def _form(self, number: str) -> str:
        """What forms of a session carry, which other sites cannot know."""
        return hmac.new(self._secret().encode(), f"form {number}".encode(), hashlib.sha256).hexdigest()

    def _signer(self, salt: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._secret(), salt=salt, signer_kwargs={"digest_method": hashlib.sha256})

    def _secret(self) -> str:
        """What cookies are signed with: made once, and the same for all servers of a store."""
        with self._lock:
            if not (found := self._tokens(SESSION)):
                name = f"key {secrets.token_hex(4)}"
                self.store.add_token(SESSION, secrets.token_hex(32), name, by="server", at=self.clock())
                self._known.pop(SESSION, None)
                found = self._tokens(SESSION)
        return min(found)[0]
