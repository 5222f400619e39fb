"""Search the current or the archived experiments by text and tag.

The search is part of the URL query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

__all__ = ["ExperimentSearch", "list_tags"]

SEARCHED = ("title", "description", "hypothesis", "owner", "primary")
"""The settings whose texts are searched, in addition to the ID and the tags."""


class ExperimentSearch(NamedTuple):
    """A visitor's search in the list of experiments.

    Parameters
    ----------
    text : str
        The words to search for; each must occur in the experiment's ID, a tag or another text, such as the title. Case
        is ignored.
    tag : str
        A tag that an experiment must have; empty for all experiments.
    archived : bool
        Whether to list only archived experiments. Otherwise, only experiments that are not archived are listed.
    """

    text: str = ""
    tag: str = ""
    archived: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Read a search from a URL query."""
        return cls(query.get("q", "").strip()[:200], query.get("tag", ""), query.get("archived") == "1")

    def matches(self, experiment: str, definition: Mapping[str, Any]) -> bool:
        """Return whether an experiment matches the search, given its ID and its definition as JSON values.

        Examples
        --------
        >>> one = {"title": "A new ranker", "tags": ["search"], "archived": False}
        >>> [ExperimentSearch(text).matches("rank-7", one) for text in ("RANKER search", "rank-7", "checkout")]
        [True, True, False]
        """
        tags = definition.get("tags", [])
        if bool(definition.get("archived")) != self.archived or (self.tag and self.tag not in tags):
            return False
        texts = [experiment, *tags, *(str(definition.get(name, "")) for name in SEARCHED)]
        return all(any(word in text.casefold() for text in texts) for word in self.text.casefold().split())


def list_tags(definitions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the distinct tags in the definitions, sorted."""
    return sorted({tag for definition in definitions for tag in definition.get("tags", [])})
