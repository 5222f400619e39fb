"""Confidence intervals, comparisons of metrics, sequential tests, and verdicts on experiments.

The functions compute with the values that metrics and their shards provide. They change no state.
"""
