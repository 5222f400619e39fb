"""Suggest a known name for an unknown one, such as a misspelling, an abbreviation, or a name in another library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .tables import PEERS, PeerLine, format_expression, load_lines

__all__ = ["ABBREVIATIONS", "MissingNameError", "NameSuggestion", "find_suggestion", "normalize_name"]

ABBREVIATIONS = {
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
"""Common abbreviations, spelled as `normalize_name` returns them, and the metrics of the package that they stand for.

An abbreviation is not listed if it differs from a name of the package only in case and punctuation.
"""


@dataclass(frozen=True)
class NameSuggestion:
    """A suggestion for a name that the package does not define.

    Parameters
    ----------
    ours : tuple of str
        Equivalent expressions without the prefix `sm.`, such as "AUC()", the most likely first; empty if there is none.
    library : str
        The key of the other library that the suggestion comes from, such as "sklearn"; empty if it comes from none.
    name : str
        The name as that library spells it.
    why : str
        Why this package has no equivalent; empty if it has one.
    """

    ours: tuple[str, ...]
    library: str = ""
    name: str = ""
    why: str = ""


def normalize_name(name: str) -> str:
    """Return a name in lower case without punctuation: `roc_auc_score` and `RocAucScore` become equal."""
    return "".join(c for c in name.lower() if c.isalnum())


def find_suggestion(name: str, names: Iterable[str]) -> NameSuggestion | None:
    """Return a suggestion for an unknown name; None if there is none.

    Parameters
    ----------
    name : str
        The unknown name.
    names : iterable of str
        The known names.
    """
    own_names = {normalize_name(one): one for one in names}
    normalized = normalize_name(name)
    if normalized in own_names:
        return NameSuggestion((own_names[normalized],))
    if normalized in ABBREVIATIONS:
        return NameSuggestion((ABBREVIATIONS[normalized],))
    return _find_peer_name(name) or _find_similar_name(normalized, own_names)


def _find_peer_name(name: str) -> NameSuggestion | None:
    """Return the equivalent of the metric that another library calls `name`; None if no library has such a metric.

    The case and punctuation of the name do not matter, but a metric with exactly this spelling takes precedence.
    """
    lines = [line for line in load_lines() if line.name == name]
    lines = lines or [line for line in load_lines() if normalize_name(line.name) == normalize_name(name)]
    if not lines:
        return None
    first, ours = lines[0], tuple(dict.fromkeys(line.ours for line in sorted(lines, key=_rank) if line.ours))
    return NameSuggestion(ours, first.peer, first.name, "" if ours else first.why)


def _rank(line: PeerLine) -> tuple[bool, bool]:
    return line.differs, bool(line.arguments)


def _find_similar_name(normalized: str, own_names: dict[str, str]) -> NameSuggestion | None:
    # Import this module only when it is needed, so that importing the package stays fast.
    import difflib

    theirs = {normalize_name(line.name): line.name for line in load_lines()}
    for names in (own_names, {**theirs, **dict.fromkeys(ABBREVIATIONS, "")}):
        close = difflib.get_close_matches(normalized, names, 1, 0.75)
        if close and names is own_names:
            return NameSuggestion((own_names[close[0]],))
        if close:
            return (
                NameSuggestion((ABBREVIATIONS[close[0]],))
                if close[0] in ABBREVIATIONS
                else _find_peer_name(theirs[close[0]])
            )
    return None


class MissingNameError(AttributeError):
    """The error for a name that the package does not define; a suggestion is looked up only when its message is shown.

    Parameters
    ----------
    name : str
        The unknown name.
    names : list of str
        The known names.
    """

    def __init__(self, name: str, names: list[str]) -> None:
        # If `obj` were the module, Python's traceback would add a second suggestion.
        super().__init__(name, names, name=name, obj=None)

    def __str__(self) -> str:
        name, names = self.args
        message = f"module 'streammetrics' has no attribute {name!r}"
        suggestion = None if name.startswith("_") else find_suggestion(name, names)
        return message if suggestion is None else f"{message}; {format_suggestion(suggestion)}"


def format_suggestion(meant: NameSuggestion) -> str:
    """Return a suggestion as text for an error message."""
    if not meant.library:
        return f"did you mean {format_expression(meant.ours[0])}?"
    library_name = f"{PEERS[meant.library]}'s {meant.name}"
    more = (
        f" (other arguments: streammetrics catalog --from {meant.library} {meant.name})" if len(meant.ours) > 1 else ""
    )
    return (
        f"{library_name} is {format_expression(meant.ours[0])} here{more}"
        if meant.ours
        else f"{library_name} is not offered: {meant.why}"
    )
