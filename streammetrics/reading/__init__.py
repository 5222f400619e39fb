"""Results computed from states: values, certified bounds, confidence intervals and tables.

A state holds the counts or sums that `update` accumulated. To read a state is to compute the value of a metric from it.
"""
