"""The live dashboard: workers post states, people watch experiments.

A part of an hour comes in (`ingest`), is kept (`store`), added to the total of its experiment (`totals`), read
(`evaluate`), and shown (`app`, `page`). Storage, freshness and access are what this layer adds; numbers are those of the
library.
"""
