"""Pictures of results and the page."""
