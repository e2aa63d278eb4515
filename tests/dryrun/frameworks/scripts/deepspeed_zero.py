"""DeepSpeed: ZeRO of a stage."""

import argparse

import deepspeed
import torch
from model import Config, Transformer
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=3)
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()

settings = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": args.stage},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
}
deepspeed.init_distributed("nccl")
config = Config()
with deepspeed.zero.Init(config_dict_or_path=settings, enabled=args.stage == 3):
    model = Transformer(config)
engine, *_ = deepspeed.initialize(model=model, config=settings, model_parameters=model.parameters())
for _ in range(10):
    tokens = torch.randint(0, config.vocabulary, (2, config.sequence), device=engine.device)
    loss = F.cross_entropy(engine(tokens).float().flatten(0, 1), tokens.flatten())
    engine.backward(loss)
    engine.step()
