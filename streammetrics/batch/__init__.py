"""Batches: from the data of the user to checked columns, and to the rows that a state counts."""
