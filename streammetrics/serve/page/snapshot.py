"""Render an experiment's page as an HTML file that stays the same when the experiment or this package changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..evaluation.evaluation import Evaluation
from .history import load_history
from .page_data import build_page
from .routes import build_templates, load_static_files
from .time_format import format_time
from .view import View

__all__ = ["NONCE", "SnapshotPerson", "render_snapshot"]

NONCE = "SNAPSHOT"
"""A placeholder for the nonce of the styles in a snapshot. The server replaces it with the nonce of each response."""


class SnapshotPerson(NamedTuple):
    """The user for whom a snapshot is rendered: an anonymous reader, who cannot change anything."""

    name: str = ""
    role: str = "reader"
    csrf_token: str = ""


def render_snapshot(
    store: Any, describe_changes: Callable[[str, str], list[str]], evaluation: Evaluation, sentence: str
) -> str:
    """Return the page of an experiment as HTML with embedded styles, without scripts or forms.

    Parameters
    ----------
    store : Store
        The store of definitions, looks and conflicts.
    describe_changes : callable
        Takes two definitions as JSON; returns the changes from the first to the second as sentences.
    evaluation : Evaluation
        The evaluation that the page shows.
    sentence : str
        The sentence at the top of the page, which says why the snapshot was made.
    """
    history = load_history(store, evaluation.experiment, describe_changes)
    templates = build_templates()
    styles = "\n".join(one.text for one in load_static_files().values() if one.kind.startswith("text/css"))
    frozen = {
        "nonce": NONCE,
        "styles": styles,
        "sentence": f"Snapshot of {format_time(evaluation.at)}: {sentence}",
    }
    text: str = templates.get_template("experiment.html").render(
        root="", who=SnapshotPerson(), owner=False, at=repr(evaluation.at), frozen=frozen,
        page=build_page(evaluation, history, View(timezone=evaluation.timezone)),
    )  # fmt: skip
    return text
