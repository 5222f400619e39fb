"""The index of a term, such as "log_loss", among the terms whose sums a state keeps."""

from __future__ import annotations

from typing import Any

__all__ = ["find_term"]


def find_term(state: Any, term: str) -> int:
    """Return the index of a term in the setting `terms` of a state.

    Raises
    ------
    ValueError
        The state does not keep the sums of the term.
    """
    terms: tuple[str, ...] = state.terms
    if term not in terms:
        raise ValueError(
            f"{type(state).__name__} keeps no sums of {term!r}; its terms are {', '.join(terms) or 'none'}; add the term "
            f"to terms= in make_state()"
        )
    return terms.index(term)
