"""States: the counts and sums of a log, in one immutable table with a row for each cell (such as a slice).

This package depends on numpy, but not on the `metrics` and `batch` packages.
"""
