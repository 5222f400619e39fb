"""From what users give to checked columns."""
