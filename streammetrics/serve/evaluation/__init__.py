"""What is known of an experiment: totals, windows, verdicts, and the definitions behind them."""
