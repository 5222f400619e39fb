"""Read prediction logs in batches, score them in one pass, and write simulated logs."""
