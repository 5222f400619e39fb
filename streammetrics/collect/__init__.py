"""The base classes of metrics, and functions that group, merge, save and load metrics."""
