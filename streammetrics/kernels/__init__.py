"""Plain loops over arrays: no classes, no checks of types, no options. Each numba kernel says what it counts."""
