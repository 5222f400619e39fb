"""What a metric says about a state, and what results are made of: values, bounds, intervals, records, tables."""
