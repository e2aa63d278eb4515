"""The Trainer of transformers: a small Llama, FSDP2 through accelerate, bf16, gradient checkpointing."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Texts(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        tokens = torch.randint(0, 32000, (2048,))
        return {"input_ids": tokens, "labels": tokens}


config = LlamaConfig(
    vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16,
    num_key_value_heads=4, max_position_embeddings=2048,
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=1,
        max_steps=10,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        fsdp="full_shard auto_wrap",
        fsdp_config={
            "fsdp_version": 2,
            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
            "reshard_after_forward": True,
            "cpu_ram_efficient_loading": False,
        },
    )
    Trainer(LlamaForCausalLM(config), arguments, train_dataset=Texts()).train()
