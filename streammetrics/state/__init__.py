"""State: what was seen, as one immutable table of cells. Numpy alone; knows no metric and no batch."""
