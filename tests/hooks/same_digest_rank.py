"""A rank of the one test of all engines: `same_digest_rank.py RANK SIZE STORE FOLDER` counts its files, and syncs."""

from __future__ import annotations

import pickle
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import torch.distributed as dist

import streammetrics as sm
from streammetrics.hooks.torch_distributed import sync

rank, size, store, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
dist.init_process_group("gloo", f"file://{store}", timedelta(minutes=4), rank=rank, world_size=size)
metrics = pickle.loads((folder / "metrics").read_bytes())
for i, file in enumerate(sorted(folder.glob("*.parquet"))):
    if i % size == rank:
        metrics.update(pq.read_table(file))
total = sync(metrics, timeout=200)
if rank == 0:
    sm.save(total, folder / "total.smet")
dist.destroy_process_group()
