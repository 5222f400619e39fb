"""Read the data that a user passes to `update`: find the columns, convert and check them, and select the rows to count."""
