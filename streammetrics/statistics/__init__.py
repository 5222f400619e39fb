"""Sufficient statistics: the sums and histograms from which metrics are computed. Several metrics can share one."""
