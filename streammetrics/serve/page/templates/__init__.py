"""The HTML templates of the dashboard's pages."""
