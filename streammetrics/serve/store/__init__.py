"""Where a dashboard keeps what is posted to it: one file of SQLite, or PostgreSQL."""

from .failures import StoreDownError, StoreFullError
from .open import Store, open_store
from .parts import StoredPart
from .records import Audit, DefinitionVersion, Token

__all__ = [
    "Audit",
    "DefinitionVersion",
    "Store",
    "StoreDownError",
    "StoreFullError",
    "StoredPart",
    "Token",
    "open_store",
]
