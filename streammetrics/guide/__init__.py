"""What users read: the pages of `streammetrics guide`, and the tables of what other libraries call their metrics."""
