"""Sufficient statistics: what is counted, one short file each."""
