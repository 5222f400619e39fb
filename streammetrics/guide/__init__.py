"""The pages of `streammetrics guide`, and tables of equivalents for metrics from other libraries."""
