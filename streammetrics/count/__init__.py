"""Counting: one call of kernels adds a batch to the counters of all statistics. Kernels are loaded with the first row."""
