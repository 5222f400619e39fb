"""Bytes of states: frames, sections, and the codes of numbers in them. Numpy alone."""
