"""The foundation of the other packages: exact and reproducible arithmetic, settings and slice keys.

It depends only on numpy.
"""
