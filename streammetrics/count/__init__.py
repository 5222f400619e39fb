"""Counting: batches go to counters, cell by cell, in one call of kernels. Kernels load with the first row."""
