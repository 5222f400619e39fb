"""The live dashboard: workers post metric states, and people watch experiments.

A source, such as a web server, posts one part per hour: the metric states of the rows in that hour. `api.ingest`
decodes and checks the part, and `store` saves it. `evaluation.totals` merges all parts of an experiment into its total,
and `evaluation.evaluate` computes verdicts and figures from the total. `page` shows them. All numbers come from the
library's metrics and statistical inference. The dashboard adds storage, freshness checks and access control.
"""
