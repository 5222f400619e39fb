"""The HTTP interface of the dashboard: login, access control, rate limits, and the decoding of posted metrics."""
