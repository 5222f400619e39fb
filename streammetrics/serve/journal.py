"""Record decisions and annotations of an experiment, and announce decisions to webhooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InvalidInputError
from .evaluation.evaluation import Evaluation
from .evaluation.experiment import Experiment, convert_hour
from .store.journal import Annotation, Decision

__all__ = ["Journal", "check_text"]

MAX_REASON, MAX_ANNOTATION = 2000, 200
"""The maximum length of the reason for a decision, and of an annotation, in characters."""


class Journal(NamedTuple):
    """A service that saves people's decisions and remarks about experiments.

    Parameters
    ----------
    store : Store
        The store of decisions and annotations.
    board : Board
        Provides the evaluations, and the alerts that announce decisions.
    render : callable
        Takes an evaluation and a sentence. Returns the page of the experiment, including this sentence, as
        self-contained HTML.
    clock : callable
        Returns the time, in seconds since 1970.
    """

    store: Any
    board: Any
    render: Callable[[Evaluation, str], str]
    clock: Callable[[], float]

    def decide(self, experiment: Experiment, arm: Any, reason: Any, *, by: str) -> Decision:
        """Record the decision to give `arm` to all users from now on, together with a copy of the current page.

        Raises
        ------
        InvalidInputError
            The experiment has no such arm, or the reason is empty or too long.
        """
        if not isinstance(arm, str) or arm not in experiment.arms:
            raise InvalidInputError(f"arm: expected one of {', '.join(experiment.arms)}, found {str(arm)[:100]!r}")
        reason = check_text("reason", reason, MAX_REASON)
        evaluation, at = self.board.evaluation(experiment.id), self.clock()
        sentences = [v.sentence for v in evaluation.verdicts if arm in (v.treatment, experiment.control)]
        verdict = " ".join([*sentences, *(f"{change}." for change in evaluation.late_changes)])
        decision = Decision(0, at, by, arm, reason, evaluation.version, verdict)
        page = self.render(evaluation, f"{by} decided for {arm}: {reason}")
        decision = decision._replace(number=self.store.add_decision(experiment.id, decision, page))
        self.board.alerts.announce_decision(evaluation, decision, experiment.webhooks)
        self.board.mark_changed(experiment.id)
        return decision

    def annotate(self, experiment: Experiment, hour: Any, text: Any, *, by: str) -> Annotation:
        """Add a remark about an hour (for example, that a new release was deployed) to the charts over time.

        Raises
        ------
        InvalidInputError
            The hour is invalid, before the start or in the future, or the text is empty, too long or not printable.
        """
        hour, at = convert_hour("hour", hour), self.clock()
        experiment.check_hour(hour, at)
        text = check_text("text", text, MAX_ANNOTATION)
        number = self.store.add_annotation(experiment.id, hour, text, by=by, at=at)
        self.board.mark_changed(experiment.id)
        return Annotation(number, at, by, hour, text)


def check_text(key: str, value: Any, limit: int) -> str:
    """Return text that a user has entered, such as a reason, as one line.

    Raise an InvalidInputError that names `key` if the text is empty, too long or not printable.
    """
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text.isprintable() or not 0 < len(text) <= limit:
        raise InvalidInputError(f"{key}: expected a text of 1 to {limit:,} printable characters, found {value!r:.100}")
    return text
