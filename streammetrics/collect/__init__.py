"""The base classes of metrics, and what to do with metrics: group them in tasks and collections, merge, save, load."""
