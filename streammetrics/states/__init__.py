"""Sufficient statistics, one file each: settings, arrays, `absorb` calling a kernel, and the read-outs metrics share."""
