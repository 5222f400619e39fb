"""Count batches: one call into compiled code adds a batch to all states. The code is loaded when it is first used."""
