"""Metrics, tasks and collections, and the one way a batch is counted."""
