"""The pages of `streammetrics guide`, and tables that list the equivalents of metrics from other libraries."""
