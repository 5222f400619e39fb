"""The web pages of the dashboard, which show evaluations with the charts and tables of the reports."""
