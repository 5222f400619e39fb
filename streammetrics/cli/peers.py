"""`streammetrics catalog --from sklearn roc_auc_score`: show the equivalents of other libraries' metrics."""

from __future__ import annotations

from streammetrics.cli.messages import unknown_name_error
from streammetrics.cli.specs import format_spec
from streammetrics.guide.suggest import normalize_name
from streammetrics.guide.tables import PEERS, PeerLine, find_peer_lines, format_expression
from streammetrics.reports.text_table import Cell, Grid, is_terminal, print_grid, print_line

__all__ = ["list_names", "show_name"]

DATA_WORDS = {
    **dict.fromkeys(("binary_scores", "binary_logits", "binary_decisions"), "two classes"),
    **dict.fromkeys(("class_scores", "class_decisions"), "several classes"),
    **dict.fromkeys(("label_scores", "label_decisions"), "several labels"),
    "number_outputs": "several outputs",
}
"""The words in the output for the kind of data (`PeerLine.data`) to which an equivalent applies."""
TASK_PREFIXES = ("Binary", "Multiclass", "Multilabel")
"""Prefixes of torchmetrics class names. A user may leave them out: AUROC stands for BinaryAUROC and MulticlassAUROC."""


def list_names(library: str) -> None:
    """Print all metrics of another library, each with its equivalent in this library."""
    lines_by_name = find_peer_lines(_find_library(library))
    lines = [line for name in lines_by_name for line in lines_by_name[name]]
    if is_terminal():
        for line in lines:
            print_line(_format_peer_call(line), "bold")
            print_line(f"  {_format_own_call(line) or f'not offered: {line.why}'}")
        return
    texts = [
        [_format_peer_call(line), _format_own_call(line), f"not offered: {line.why}" if line.why else line.note]
        for line in lines
    ]
    rows: list[list[Cell] | None] = [[Cell(text) for text in row] for row in texts]
    print_grid(
        Grid("", [PEERS[_find_library(library)], "here", "what differs"], rows, left_columns=3, unbroken_lines=True)
    )


def show_name(library: str, name: str) -> None:
    """Print the equivalent of another library's metric, in Python and on the command line, and how the two differ."""
    peer = _find_library(library)
    lines = _find_lines(peer, name.rpartition(".")[2])
    calls = [_format_peer_call(line) for line in lines]
    last = ""
    for line, call in zip(lines, calls, strict=True):
        # One call of another library may have several equivalents in this library, for different kinds of data.
        data = DATA_WORDS.get(line.data, "") if calls.count(call) > 1 else ""
        head = f"{PEERS[peer]}  {call}{data and f', {data}'}"
        if head != last:
            print_line(head, "bold cyan")
        last = head
        if line.why:
            print_line(f"  not offered: {line.why}")
            continue
        print_line(f"  {_format_own_call(line)}")
        if spec := format_spec(line.ours):
            print_line(f"  --metrics {spec}", "dim")
        if line.note:
            print_line(f"  {'other values: ' if line.differs else ''}{line.note}")


def _find_library(library: str) -> str:
    keys = {normalize_name(word): key for key, spoken in PEERS.items() for word in (key, spoken)}
    if normalize_name(library) not in keys:
        raise unknown_name_error("library", library, PEERS)
    return keys[normalize_name(library)]


def _find_lines(peer: str, name: str) -> list[PeerLine]:
    """Return all lines of the table of equivalents that describe the metric `name` of the library `peer`.

    Case and punctuation are ignored, except in a torchmetrics name without its prefix (see `TASK_PREFIXES`). There may
    be several lines, because a library may use one name for several task types.
    """
    lines_by_name = find_peer_lines(peer)
    if name in lines_by_name:
        return lines_by_name[name]
    names = {normalize_name(one): one for one in lines_by_name}
    if normalize_name(name) in names:
        return lines_by_name[names[normalize_name(name)]]
    if peer == "torchmetrics" and (
        of_tasks := [line for task in TASK_PREFIXES for line in lines_by_name.get(task + name, [])]
    ):
        return of_tasks
    raise unknown_name_error("metric", name, lines_by_name, PEERS[peer])


def _format_peer_call(line: PeerLine) -> str:
    return f"{line.name}({line.arguments}){line.read}"


def _format_own_call(line: PeerLine) -> str:
    return format_expression(line.ours) + line.ours_read if line.ours else ""
