"""States: the counts and sums over a log's rows, in one immutable table with an entry for each cell (such as a slice).

This package depends on numpy, but not on the `metrics` and `batch` packages.
"""
