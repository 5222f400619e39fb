"""Rows by group: open groups, to which rows may still be added, and closed groups, as sums over groups."""
