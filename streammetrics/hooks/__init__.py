"""Metrics for training frameworks: one module for each framework, which it imports at the top."""
