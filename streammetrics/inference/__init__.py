"""Confidence intervals, comparisons, sequential tests and verdicts, all as pure functions of numbers."""
