"""Wrappers that compute metrics by slice, by time window, by shard of users, or with decay.

The modules `ledger` and `checkpoint` contain totals that also record which parts of a log they include.
"""
