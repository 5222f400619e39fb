"""Find the changes to a definition that could bias its verdict, because they were made after data had arrived."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from ..part_keys import HOUR
from ..store.records import DefinitionVersion
from .experiment import Experiment, describe_changes

__all__ = ["DefinitionHistory", "LateChange", "build_definition_history"]

DECIDING_FIELDS = ("primary", "users", "guardrails")


class LateChange(NamedTuple):
    """A change to the primary metric, the planned users or the guardrails after the first data had arrived.

    This includes a change of the better direction (higher or lower) of the primary metric or a guardrail.

    Parameters
    ----------
    version : int
        The version of the definition that contains the change.
    sentence : str
        The change, its time and its author.
    needs_new_users : bool
        Whether the change could favor a result that was already visible. This is the case if the primary metric was
        replaced, a guardrail was loosened or removed, or the better direction of one of them was reversed. After such a
        change, the verdict must be based only on users who were exposed later.
    reason : str
        The reason that an owner gave for accepting the change; empty if nobody has accepted it.
    """

    version: int
    sentence: str
    needs_new_users: bool
    reason: str

    @property
    def text(self) -> str:
        """The change with its reason, for the page."""
        return f"{self.sentence}, after the first data; {f'accepted: {self.reason}' if self.reason else 'not accepted'}"


class DefinitionHistory(NamedTuple):
    """The changes to a definition that affect the evaluation.

    Parameters
    ----------
    changes : list of str
        All changes since the start, as sentences from `describe_changes`.
    phases_at : list of float
        The times at which new phases begin, because the planned shares or the rules for the verdict have changed.
    late : list of LateChange
        The changes, made after the first data had arrived, that could bias the verdict.
    tuned_users : float or None
        The planned number of users when the first data arrived or, if it was not set then, the first number set later.
        The always-valid intervals stay tuned for this number.
    """

    changes: Sequence[str] = ()
    phases_at: Sequence[float] = ()
    late: Sequence[LateChange] = ()
    tuned_users: float | None = None


def build_definition_history(
    versions: Sequence[DefinitionVersion], definitions: Sequence[Experiment], first_data_at: float
) -> DefinitionHistory:
    """Return the history of a definition.

    Parameters
    ----------
    versions, definitions : sequence
        All versions, oldest first, and the experiments that they define.
    first_data_at : float
        The time at which the first part arrived, in seconds since 1970.
    """
    last = definitions[-1]
    changes: list[str] = []
    phases_at: list[float] = []
    late: list[LateChange] = []
    tuned_users = definitions[0].users
    for version, old, new in zip(versions[1:], definitions, definitions[1:], strict=False):
        sentences, is_late = describe_changes(old, new), version.at >= first_data_at
        is_turned = _has_other_direction(old, new)
        names = (*DECIDING_FIELDS, "better") if is_turned else DECIDING_FIELDS
        deciding = [one for one in sentences if one.startswith(tuple(f"{name}:" for name in names))]
        is_easier = old.primary != new.primary or _has_looser_guardrail(old, new) or is_turned
        needs_new_users = is_late and is_easier
        if version.at >= last.start * HOUR:
            changes += sentences
        if needs_new_users or (version.at >= last.start * HOUR and old.arms != new.arms):
            phases_at.append(version.at)
        if is_late and deciding:
            sentence = f"{'; '.join(deciding)} (version {version.version}, by {version.by}, {_format_time(version.at)})"
            reason = last.accepted_changes.get(str(version.version), "")
            late.append(LateChange(version.version, sentence, needs_new_users, reason))
        if not is_late or tuned_users is None:
            tuned_users = new.users
    return DefinitionHistory(changes, phases_at, late, tuned_users)


def _has_looser_guardrail(old: Experiment, new: Experiment) -> bool:
    return any(new.guardrails.get(name, float("inf")) > margin for name, margin in old.guardrails.items())


def _has_other_direction(old: Experiment, new: Experiment) -> bool:
    """Return whether `new` reverses the better direction (higher or lower) of the primary metric or of a guardrail."""
    deciding = {old.primary, *old.guardrails} & {new.primary, *new.guardrails}
    # A direction that only one version specifies does not count as a change, because it is usually the default, which
    # the other version uses implicitly.
    return any(old.better[name] != new.better[name] for name in deciding & {*old.better} & {*new.better})


def _format_time(at: float) -> str:
    time = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return f"{time.day} {time:%B %Y %H:%M} UTC"
