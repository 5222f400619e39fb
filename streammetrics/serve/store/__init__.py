"""The store of a dashboard, which keeps all data in an SQLite file or a PostgreSQL database."""

from .failures import StoreDownError, StoreFullError
from .leases import ExperimentStatus, LeaseLostError
from .open import Store, open_store
from .parts import StoredPart
from .records import AuditEntry, DefinitionVersion, Token

__all__ = [
    "AuditEntry",
    "DefinitionVersion",
    "ExperimentStatus",
    "LeaseLostError",
    "Store",
    "StoreDownError",
    "StoreFullError",
    "StoredPart",
    "Token",
    "open_store",
]
