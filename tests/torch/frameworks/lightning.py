"""Lightning: ``DDPStrategy(process_group_backend=...)`` makes the process group."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

from frameworks.features import feature
from frameworks.training import assert_same, batches, model, optimizer, part, trained_alone


def fitted(here, strategy, start, data, prepare=lambda module: None, **told):
    """Trains a model with Lightning's Trainer, after ``prepare(module)``. Returns the model and the Trainer."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = copy.deepcopy(start)

        def configure_model(self):
            prepare(self)

        def training_step(self, batch, _index):
            x, y = batch
            loss = nn.functional.mse_loss(self.model(x), y)
            self.log("loss", loss, on_epoch=True, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return optimizer(self.parameters())

    own = [part(batch, here.rank, here.world_size) for batch in data]
    samples = TensorDataset(*(torch.cat(one) for one in zip(*own, strict=True)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=here.world_size,
        strategy=strategy,
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=here.folder,
        **told,
    )
    module = Module()
    trainer.fit(module, DataLoader(samples, len(own[0][0])))
    return module, trainer


@feature(needs="lightning", makes_group=True)
def data_parallel(here):
    from lightning.pytorch.strategies import DDPStrategy

    start, data = model(), batches()
    module, trainer = fitted(here, DDPStrategy(process_group_backend=here.backend), start, data)
    assert torch.distributed.get_backend() == here.backend and trainer.world_size == here.world_size
    alone = trained_alone(start, data)
    assert_same(module.model, alone)

    # Lightning saves on rank 0 and makes the others wait
    trainer.save_checkpoint(here.folder / "whole.ckpt")
    saved = torch.load(here.folder / "whole.ckpt", weights_only=False)["state_dict"]
    assert_same({name.removeprefix("model."): value for name, value in saved.items()}, alone)


@feature(needs="lightning", makes_group=True)
def sharded(here):
    """fully_shard by ModelParallelStrategy. Lightning's FSDPStrategy refuses CPUs."""
    from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard

    start, data = model(), batches()
    with pytest.raises(ValueError, match="The strategy `fsdp` requires a GPU accelerator"):
        fitted(here, FSDPStrategy(process_group_backend=here.backend), start, data)

    def shard(module):
        if not isinstance(module.model[0].weight, DTensor):
            fully_shard(module.model, mesh=module.device_mesh["data_parallel"])

    strategy = ModelParallelStrategy(here.world_size, 1, process_group_backend=here.backend)
    module, _ = fitted(here, strategy, start, data, shard)
    found = {name: value.full_tensor() for name, value in module.model.named_parameters()}
    assert_same(found, trained_alone(start, data))


@feature(needs="lightning", makes_group=True)
def fabric(here):
    """Fabric: a training loop of one's own."""
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import DDPStrategy

    start, data = model(), batches()
    made = Fabric(accelerator="cpu", devices=here.world_size, strategy=DDPStrategy(process_group_backend=here.backend))
    made.launch()
    assert torch.distributed.get_backend() == here.backend
    trained = copy.deepcopy(start)
    wrapped, update = made.setup(trained, optimizer(trained.parameters()))
    for batch in data:
        x, y = part(batch, here.rank, here.world_size)
        update.zero_grad()
        made.backward(nn.functional.mse_loss(wrapped(x), y))
        update.step()
    assert_same(wrapped.module, trained_alone(start, data))
    assert made.all_gather(torch.tensor(float(here.rank))).tolist() == list(range(here.world_size))
