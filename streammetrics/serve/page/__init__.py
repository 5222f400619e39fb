"""The web pages of the dashboard. They show evaluations with the same charts and tables as the package's reports."""
