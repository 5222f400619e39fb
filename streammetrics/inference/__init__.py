"""Intervals, comparisons, evidence at any look, and verdicts: pure functions of numbers."""
