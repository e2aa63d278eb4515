"""A step of reinforcement learning: `generate` of transformers, a frozen reference model, and training, with DDP."""

import copy
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

dist.init_process_group("nccl")
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
config = LlamaConfig(
    vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16,
    num_key_value_heads=4, bos_token_id=1, eos_token_id=0, pad_token_id=0, dtype="bfloat16",
)  # fmt: skip
policy = LlamaForCausalLM(config).to(device, torch.bfloat16)
reference = copy.deepcopy(policy)
model = DistributedDataParallel(policy, device_ids=[device])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
prompts = torch.randint(3, 32000, (1, 64), device=device)
for _ in range(10):
    tokens = policy.generate(prompts, max_new_tokens=32, do_sample=True)
    with torch.no_grad():
        expected = reference(tokens).logits
    found = model(tokens).logits
    torch.nn.functional.kl_div(found.log_softmax(-1), expected.log_softmax(-1), log_target=True).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
