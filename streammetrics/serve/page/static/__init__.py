"""Files that pages load."""
