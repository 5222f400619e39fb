"""A batch: from what users give to checked columns, and to the rows that a state counts."""
