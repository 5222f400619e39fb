"""The pages of `streammetrics guide`, and tables of the metrics of other libraries with their equivalents."""
