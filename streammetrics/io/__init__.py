"""Reading logs in batches; a log to try things on."""
