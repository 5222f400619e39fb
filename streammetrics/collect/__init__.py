"""Metrics, tasks and collections, their accumulators, and their files."""
