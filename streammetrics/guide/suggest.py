"""What a name that is not there may mean: ours in other letters, an abbreviation, or the name in another library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .tables import PEERS, PeerLine, lines, written

__all__ = ["OFTEN", "Meant", "MissingNameError", "squashed", "what_is_meant"]

OFTEN = {
    "acc": "Accuracy()",
    "ap": "AveragePrecision()",
    "arhr": "MeanReciprocalRank()",
    "auprc": "AveragePrecision()",
    "auroc": "AUC()",
    "brier": "BrierScore()",
    "copc": "Calibration(inverse=True)",
    "crossentropy": "LogLoss()",
    "ece": "ExpectedCalibrationError()",
    "err": "ExpectedReciprocalRank()",
    "fieldece": "GroupCalibrationError()",
    "fpr": "FalsePositiveRate()",
    "gauc": "GroupAUC()",
    "hr": "HitRate()",
    "iou": "Jaccard()",
    "kappa": "CohenKappa()",
    "lrap": "LabelRankingAveragePrecision(num_labels=L)",
    "map": "MeanAveragePrecision()",
    "maxf1": "MaxFBeta()",
    "mcc": "MatthewsCorrcoef()",
    "mce": "MaximumCalibrationError()",
    "mrr": "MeanReciprocalRank()",
    "ne": "NormalizedEntropy()",
    "pcc": "PearsonCorrelation()",
    "pinball": "PinballLoss()",
    "pr": "PRCurve()",
    "prauc": "AveragePrecision()",
    "psi": "population_stability_index",
    "rbp": "RankBiasedPrecision()",
    "roc": "ROCCurve()",
    "rocauc": "AUC()",
    "sensitivity": "Recall()",
    "tnr": "Specificity()",
    "tpr": "Recall()",
    "uauc": "GroupAUC(group_weight='uniform')",
    "wuauc": "GroupAUC()",
}
"""Abbreviations of the field, squashed; those that are a name of ours in other letters need no line."""


@dataclass(frozen=True)
class Meant:
    """What a name stands for.

    Parameters
    ----------
    ours : tuple of str
        Expressions without `sm.`, the likeliest first; empty where it is not offered.
    whose : str
        The library's key whose name it is; empty where it is none's.
    name : str
        How the library spells it.
    why : str
        Why it is not offered.
    """

    ours: tuple[str, ...]
    whose: str = ""
    name: str = ""
    why: str = ""


def squashed(name: str) -> str:
    """Return a name without what spellings differ in: `roc_auc_score` and `RocAucScore` are the same."""
    return "".join(c for c in name.lower() if c.isalnum())


def what_is_meant(name: str, known: Iterable[str]) -> Meant | None:
    """Return what an unknown name may stand for.

    Parameters
    ----------
    name : str
        As it was typed.
    known : iterable of str
        The names that there are.
    """
    mine = {squashed(one): one for one in known}
    wanted = squashed(name)
    if wanted in mine:
        return Meant((mine[wanted],))
    if wanted in OFTEN:
        return Meant((OFTEN[wanted],))
    return _of_a_peer(name) or _near(wanted, mine)


def _of_a_peer(name: str) -> Meant | None:
    """Return what stands for a name of another library, as it spells it before all others."""
    found = [line for line in lines() if line.name == name]
    found = found or [line for line in lines() if squashed(line.name) == squashed(name)]
    if not found:
        return None
    first, ours = found[0], tuple(dict.fromkeys(line.ours for line in sorted(found, key=_rank) if line.ours))
    return Meant(ours, first.peer, first.name, "" if ours else first.why)


def _rank(line: PeerLine) -> tuple[bool, bool]:
    return line.differs, bool(line.given)


def _near(wanted: str, mine: dict[str, str]) -> Meant | None:
    import difflib  # here alone, so that importing the package does not load it

    theirs = {squashed(line.name): line.name for line in lines()}
    for names in (mine, {**theirs, **dict.fromkeys(OFTEN, "")}):
        close = difflib.get_close_matches(wanted, names, 1, 0.75)
        if close and names is mine:
            return Meant((mine[close[0]],))
        if close:
            return Meant((OFTEN[close[0]],)) if close[0] in OFTEN else _of_a_peer(theirs[close[0]])
    return None


class MissingNameError(AttributeError):
    """A name that the package does not have, and what it may mean; which is looked up when it is read, not for `hasattr`.

    Parameters
    ----------
    name : str
        As it was typed.
    known : list of str
        The names that there are.
    """

    def __init__(self, name: str, known: list[str]) -> None:
        # given the module as obj, Python's traceback would add a second guess of its own
        super().__init__(name, known, name=name, obj=None)

    def __str__(self) -> str:
        name, known = self.args
        said = f"module 'streammetrics' has no attribute {name!r}"
        meant = None if name.startswith("_") else what_is_meant(name, known)
        return said if meant is None else f"{said}; {in_words(meant)}"


def in_words(meant: Meant) -> str:
    """Return a sentence: what to write, whose name it is, where more is told."""
    if not meant.whose:
        return f"did you mean {written(meant.ours[0])}?"
    whose = f"{PEERS[meant.whose]}'s {meant.name}"
    more = f" (other arguments: streammetrics catalog --from {meant.whose} {meant.name})" if len(meant.ours) > 1 else ""
    return f"{whose} is {written(meant.ours[0])} here{more}" if meant.ours else f"{whose} is not offered: {meant.why}"
