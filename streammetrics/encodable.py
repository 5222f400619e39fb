"""What states, metrics, collections, slices and bundles share: one digest, one form of bytes, copies, pickles."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Encodable"]


class Encodable:
    """Something that can be saved, and found equal on another machine."""

    def header(self) -> dict[str, Any]:
        """Describe the object as plain data, the arrays of its states included: what the bytes format writes."""
        raise NotImplementedError

    def copy(self) -> Self:
        """Return an independent copy."""
        raise NotImplementedError

    def _guard(self) -> AbstractContextManager[Any]:
        """Return what to hold while the content must not change."""
        return nullcontext()

    def digest(self) -> str:
        """SHA-256 of settings and content: equal things, and only equal things, have equal digests, on any machine."""
        from .codec import digest

        with self._guard():
            return digest(self)

    def to_bytes(self) -> bytes:
        """Encode everything in the library's one format (see `streammetrics.codec`)."""
        from .codec import encode

        with self._guard():
            return encode(self)

    def __reduce__(self) -> Any:
        from .codec import from_bytes

        return from_bytes, (self.to_bytes(),)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()
