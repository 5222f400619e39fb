"""The style sheet, script and icon of the dashboard's pages."""
