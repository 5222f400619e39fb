"""The bytes of states: frames, sections and the encodings of numbers. Needs only numpy."""
