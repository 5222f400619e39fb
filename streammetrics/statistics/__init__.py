"""Sufficient statistics: the sums and histograms from which metrics are computed. Metrics can share a statistic."""
