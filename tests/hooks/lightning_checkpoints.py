"""Trainings of Lightning that continue from checkpoints; writes how many rows were counted in each epoch.

`lightning_checkpoints.py FOLDER DEVICES`
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import streammetrics as sm
from streammetrics.hooks.lightning import MetricCheckpoint
from streammetrics.hooks.torchmetrics import TorchMetric

BATCHES, SIZE, MIDDLE = 8, 64, 3
RNG = np.random.default_rng(0)
Y = torch.from_numpy((RNG.random(BATCHES * SIZE) < 0.3).astype(int))
P = torch.from_numpy(RNG.random(BATCHES * SIZE))


def loader(batches: int) -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(batches, 1)), batch_size=1)


class Model(lightning.LightningModule):
    """Counts the rows of batch `i` of an epoch, whichever process has it, also after a restart."""

    def __init__(self, path: Path, persistent: bool) -> None:
        super().__init__()
        self.path = path
        self.layer = torch.nn.Linear(1, 1)
        self.auc, self.valid_auc = TorchMetric(sm.AUC()), TorchMetric(sm.AUC())
        self.counted: dict[str, list[int]] = {"rows": [], "validated": []}
        if persistent:
            self.auc.persistent(True)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch: Any, i: int) -> Any:
        mine = slice(i * SIZE + self.global_rank, (i + 1) * SIZE, self.trainer.world_size)
        self.auc.update(P[mine], Y[mine])
        return self.layer(batch[0]).sum()

    def validation_step(self, batch: Any, i: int) -> None:
        mine = slice(self.global_rank, SIZE, self.trainer.world_size)
        self.valid_auc.update(P[mine], Y[mine])
        self.log("valid_auc", self.valid_auc, on_epoch=True)

    def count(self, name: str, metric: Any) -> None:
        with metric.sync_context():
            (state,) = metric.metric_state.values()
        self.counted[name].append(sm.from_bytes(bytes(state.numpy())).explain()["rows"])

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.count("validated", self.valid_auc)

    def on_train_epoch_end(self) -> None:
        self.count("rows", self.auc)
        self.auc.reset()
        if self.global_rank == 0:
            self.path.write_text(json.dumps(self.counted))


def fit(folder: Path, devices: int, ckpt: Any = None, callback: bool = True) -> Any:
    saving = [
        ModelCheckpoint(folder / "middle", every_n_train_steps=MIDDLE, save_top_k=-1, filename="{step}"),
        ModelCheckpoint(folder / "end", save_on_train_epoch_end=True, save_top_k=-1, filename="{epoch}"),
    ]
    trainer = lightning.Trainer(
        accelerator="cpu", devices=devices, strategy="ddp_spawn" if devices > 1 else "auto", max_epochs=2, logger=False,
        callbacks=[*[MetricCheckpoint()] * callback, *(saving if ckpt is None else [])], enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, default_root_dir=folder, num_sanity_val_steps=0,
        enable_checkpointing=ckpt is None,
    )  # fmt: skip
    model = Model(folder / "counted.json", persistent=not callback)
    trainer.fit(model, loader(BATCHES), loader(1), ckpt_path=ckpt)
    return json.loads((folder / "counted.json").read_text())


def main(folder: Path, devices: int) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    first = fit(folder, devices)
    middle, end = folder / "middle" / "step=3.ckpt", folder / "end" / "epoch=0.ckpt"
    found = {
        "first": first["rows"],
        "validated": first["validated"],
        "middle": fit(folder, devices, middle)["rows"],
        "end": fit(folder, devices, end)["rows"],
        "middle, one process": fit(folder, 1, middle)["rows"],
    }
    alone = folder / "alone"
    alone.mkdir()
    fit(alone, 1, callback=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found["alone"] = fit(alone, 1, alone / "middle" / "step=3.ckpt", callback=False)["rows"]
    found["warning"] = "; ".join(str(w.message) for w in said)
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
