"""The evaluation of experiments: definitions, totals, windows, verdicts and looks."""
