"""Wrappers that compute metrics by slice, by time window, with decay or by shard of users.

The modules `ledger` and `checkpoint` contain totals that also record which parts of a log they contain.
"""
