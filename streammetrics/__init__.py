"""Streaming metric accumulators: constant memory, mergeable, the same bits however the log is split."""

__version__ = "0.1.0.dev0"
