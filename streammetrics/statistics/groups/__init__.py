"""Rows by group: open, waiting for their groups to be complete; or closed, as sums over groups."""
