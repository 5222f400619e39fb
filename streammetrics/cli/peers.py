"""`streammetrics catalog --from sklearn roc_auc_score`: what stands here for a metric of another library."""

from __future__ import annotations

from streammetrics.cli.messages import nearest
from streammetrics.cli.specs import spelled
from streammetrics.guide.suggest import squashed
from streammetrics.guide.tables import PEERS, PeerLine, of_peer, written
from streammetrics.reports.text_table import Cell, Grid, is_terminal, say, show

__all__ = ["list_names", "tell_name"]

TASKS = ("Binary", "Multiclass", "Multilabel")
"""What torchmetrics has a class each for, and one name above them."""


def list_names(library: str) -> None:
    """Print every name of a library with what stands for it here."""
    found = of_peer(_key(library))
    lines = [line for name in found for line in found[name]]
    if is_terminal():
        for line in lines:
            say(_call(line), "bold")
            say(f"  {_here(line) or f'not offered: {line.why}'}")
        return
    texts = [[_call(line), _here(line), f"not offered: {line.why}" if line.why else line.note] for line in lines]
    rows: list[list[Cell] | None] = [[Cell(text) for text in row] for row in texts]
    show(Grid("", [PEERS[_key(library)], "here", "what differs"], rows, left=3, whole=True))


def tell_name(library: str, name: str) -> None:
    """Print what stands for one metric of a library: the line to write, on the command line too, and what differs."""
    peer = _key(library)
    lines = _lines(peer, name.rpartition(".")[2])
    for line in lines:
        say(f"{PEERS[peer]}  {_call(line)}", "bold cyan")
        if line.why:
            say(f"  not offered: {line.why}")
            continue
        say(f"  {_here(line)}")
        if spec := spelled(line.ours):
            say(f"  --metrics {spec}", "dim")
        if line.note:
            say(f"  {'other values: ' if line.differs else ''}{line.note}")


def _key(library: str) -> str:
    known = {squashed(word): key for key, spoken in PEERS.items() for word in (key, spoken)}
    if squashed(library) not in known:
        raise nearest("library", library, PEERS)
    return known[squashed(library)]


def _lines(peer: str, name: str) -> list[PeerLine]:
    """Return the lines of a name, in whatever letters it is given; of a name above several tasks, those of each."""
    found = of_peer(peer)
    if name in found:
        return found[name]
    plain = {squashed(one): one for one in found}
    if squashed(name) in plain:
        return found[plain[squashed(name)]]
    if peer == "torchmetrics" and (of_tasks := [line for task in TASKS for line in found.get(task + name, [])]):
        return of_tasks
    raise nearest(f"metric of {PEERS[peer]}", name, found)


def _call(line: PeerLine) -> str:
    return f"{line.name}({line.given}){line.read}"


def _here(line: PeerLine) -> str:
    return written(line.ours) + line.ours_read if line.ours else ""
