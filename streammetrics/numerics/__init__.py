"""Exact integers, elementary functions, settings and canonical text; depends on numpy alone."""
