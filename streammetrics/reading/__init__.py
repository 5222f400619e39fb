"""Results computed from states: values, certified bounds, confidence intervals and tables.

A state contains the counts or sums that `update` accumulated. Reading a state means computing a metric's value from it.
"""
