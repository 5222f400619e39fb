"""Two processes of Lightning on one machine, whose ranks see different numbers of batches; writes what was logged."""

from __future__ import annotations

import atexit
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
import torch.distributed as dist

import streammetrics as sm
from streammetrics.hooks.torch import Deferred
from streammetrics.hooks.torchmetrics import TorchMetric

RNG = np.random.default_rng(0)
Y = torch.from_numpy((RNG.random(700) < 0.3).astype(int))
P = torch.from_numpy(RNG.random(700).astype(np.float16).astype(np.float64))
ROWS = {"uneven": (slice(0, 500), slice(500, 700)), "empty": (slice(0, 500), slice(0, 0))}


class Model(lightning.LightningModule):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.layer = torch.nn.Linear(1, 1)
        self.auc = TorchMetric(sm.AUC())
        self.many = TorchMetric(Deferred(sm.MetricCollection(sm.AUC(), sm.CTR()), every=2))
        self.pair = TorchMetric(sm.MetricCollection({"pair_auc": sm.AUC(), "pair_ctr": sm.CTR()}))

    def val_dataloader(self) -> Any:
        rows = ROWS["uneven"][self.global_rank]
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(P[rows], Y[rows]), batch_size=100)

    def validation_step(self, batch: Any, number: int) -> None:
        p, y = batch
        self.auc(p, y)
        self.log("auc", self.auc, on_step=False, on_epoch=True)
        self.many.update(p, y)
        self.pair.update(p, y)
        self.log_dict(self.pair, on_epoch=True)

    def on_validation_epoch_end(self) -> None:
        for name, value in self.many.compute().items():
            self.log(f"many/{name}", value)
        self.many.reset()

    def on_validation_end(self) -> None:
        # Lightning leaves gloo's threads running, and a process that ends with them aborts now and then
        atexit.register(dist.destroy_process_group)
        metric = TorchMetric(sm.AUC())
        rows = ROWS["empty"][self.global_rank]
        if len(Y[rows]):
            metric.update(P[rows], Y[rows])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torchmetrics says that this rank has seen no batch
            empty = metric.compute().item()
        bad = TorchMetric(Deferred(sm.AUC()))
        bad.update(P[:3], Y[:3] + (5 if self.global_rank == 0 else 0))
        try:
            bad.compute()
            said = "nothing"
        except sm.InvalidInputError as error:
            said = str(error)
        every: list[Any] = [None, None]
        dist.all_gather_object(every, said)
        if self.global_rank == 0:
            Path(self.folder, "others.json").write_text(json.dumps({"empty_rank": empty, "bad": every}))


def main(folder: str) -> None:
    logging.getLogger("lightning").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp_spawn", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.validate(Model(folder), verbose=False)
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    found = logged | json.loads(Path(folder, "others.json").read_text())
    Path(folder, "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
