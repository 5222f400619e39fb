"""Wrappers: each puts an axis before those there are."""
