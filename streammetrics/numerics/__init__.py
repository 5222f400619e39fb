"""Exact integers, elementary functions, settings and canonical text: numpy alone."""
