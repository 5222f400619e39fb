"""Sufficient statistics that metrics share, one module each."""
