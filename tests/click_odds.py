"""A metric by hand: all that its author knows is `Metric`, a statistic and `setting`."""

from streammetrics.extend import Metric, ScoreSums, setting


class ClickOdds(Metric[ScoreSums, float], tag="example.click_odds"):
    """Predicted odds of a click: the mean prediction over the mean of its complement.

    Parameters
    ----------
    prior : float
        The number of rows with a prediction of 1/2 that are added to the data.
    """

    prior: float = setting(default=0.0, low=0.0)

    def make_state(self) -> ScoreSums:
        return ScoreSums(terms=("score",))

    def of(self, state: ScoreSums) -> float:
        clicks = float(state.total("score")) + self.prior / 2
        rest = float(state.weight()) + self.prior - clicks
        return clicks / rest if rest else float("nan")
