"""Add batches of rows to states; the modules that need numba are imported when the first row is counted."""
