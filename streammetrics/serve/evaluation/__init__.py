"""Evaluate experiments: definitions, merged data, time windows, verdicts, and the log of verdicts shown earlier."""
