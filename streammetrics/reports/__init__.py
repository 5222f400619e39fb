"""Show results as text tables, charts and HTML pages."""
