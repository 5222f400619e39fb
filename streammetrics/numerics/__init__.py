"""The foundation of the other packages: exact and reproducible arithmetic, settings, and keys of slices.

It depends only on numpy.
"""
