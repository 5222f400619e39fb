"""Wrappers of metrics: slices, windows, decay and shards of users; and totals with the parts that they contain."""
