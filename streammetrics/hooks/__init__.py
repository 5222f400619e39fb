"""Training loops: metrics as each framework expects them, one module per framework, which imports it at the top."""
