"""States: the counts and sums of a log as one immutable table of cells. Needs only numpy, no metrics and no batches."""
