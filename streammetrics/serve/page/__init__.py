"""The page of the dashboard: drawn from evaluations by the rules of the report."""
