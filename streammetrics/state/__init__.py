"""States: the counts and sums of a log as one immutable table of cells, for example with one cell for each slice.

This package depends on numpy, but not on the packages for metrics and batches.
"""
