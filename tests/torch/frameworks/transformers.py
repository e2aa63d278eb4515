"""Trainer of Hugging Face transformers: the program makes the process group, and the Trainer takes it as it is."""

import copy

import torch

from frameworks.features import feature
from frameworks.training import assert_same, optimizer

WORDS, SEQUENCE, SAMPLES, STEPS = 32, 8, 8, 3


@feature(needs="transformers")
def language_model(here):
    """A GPT-2 of two layers, with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=WORDS, n_positions=SEQUENCE, n_embd=16, n_layer=2, n_head=2, **no_dropout, **ends)
    start = GPT2LMHeadModel(config).double()
    words = torch.randint(WORDS, (STEPS * SAMPLES, SEQUENCE))
    # no word comes before the first: transformers counts its label unless it is -100
    labels = words.clone()
    labels[:, 0] = -100
    samples = [{"input_ids": x, "labels": y} for x, y in zip(words, labels, strict=True)]

    class InOrder(Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(samples)

    told = TrainingArguments(
        str(here.folder),
        use_cpu=True,
        per_device_train_batch_size=SAMPLES // here.world_size,
        num_train_epochs=1,
        max_grad_norm=0.0,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trained = copy.deepcopy(start)
    update = optimizer(trained.parameters())
    steady = torch.optim.lr_scheduler.LambdaLR(update, lambda step: 1.0)
    trainer = InOrder(trained, told, train_dataset=samples, optimizers=(update, steady))
    assert trainer.args.world_size == here.world_size
    trainer.train()
    assert trainer.state.global_step == STEPS

    alone = copy.deepcopy(start)
    update = optimizer(alone.parameters())
    for x, y in zip(words.split(SAMPLES), labels.split(SAMPLES), strict=True):
        update.zero_grad()
        alone(input_ids=x, labels=y).loss.backward()
        update.step()
    # transformers computes losses of float32: its roundings are of 6e-8
    assert_same(trained, alone, 1e-5)
