"""Lightning: one module, the strategy by name."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1024


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def training_step(self, batch, index):
        (x,) = batch
        loss = (self.layers(x) - x).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


strategy = sys.argv[1]
trainer = lightning.Trainer(
    accelerator="gpu",
    devices=8,
    num_nodes=2,
    strategy=strategy,
    precision="bf16-true" if strategy.startswith("deepspeed") else "bf16-mixed",
    max_steps=10,
    enable_checkpointing=False,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(16 * 32 * 10, WIDTH)), batch_size=32))
