"""Confidence intervals, comparisons of metrics, sequential tests, and verdicts on experiments.

The functions use the values that metrics and their shards provide. They do not change any state.
"""
