"""Reading a state: values, certified bounds, intervals, records and tables."""
