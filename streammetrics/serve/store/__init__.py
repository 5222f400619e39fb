"""Where a dashboard keeps what is posted to it: one file of SQLite, or PostgreSQL."""

from .failures import StoreDownError, StoreFullError
from .open import Store, open_store
from .parts import Entry
from .records import Audit, Definition, Token

__all__ = ["Audit", "Definition", "Entry", "Store", "StoreDownError", "StoreFullError", "Token", "open_store"]
