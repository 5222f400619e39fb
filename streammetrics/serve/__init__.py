"""The live dashboard: workers post metric states, and people watch experiments.

A source posts one part an hour: the state of the metrics of that hour's rows. `api.ingest` decodes and checks the part,
`store` saves it, `evaluation.totals` merges it into the total of its experiment, `evaluation.evaluate` computes verdicts
and figures from the total, and `page` shows them. The dashboard adds storage, freshness checks and access control; all
numbers come from the metrics and the inference of the library.
"""
