"""Megatron-Core: a GPT of two layers, with tensor, sequence, pipeline and data parallel.

Megatron-Core is written for GPUs: some 280 places ask for a GPU. `on_the_cpu` is all that these tests
change:

::

    device="cuda", .cuda()            the CPU in their place (a TorchFunctionMode)
    torch.cuda.current_device()       the CPU
    torch.cuda.set_device()           nothing
    the tracker of CUDA's RNG         forks nothing: dropout is off, and weights are made on the CPU
    torch's LayerNorm                 marked for sequence parallel, for which Megatron-Core wants Apex
"""

import contextlib

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from frameworks.features import feature

WORDS, SEQUENCE, SAMPLES, MICROBATCHES, STEPS = 64, 8, 2, 4, 3
RATE = 0.1
LOOSE = 1e-5
"""The tolerance of parameters of float32, whose roundings are of 6e-8."""


class Cpu(TorchFunctionMode):
    """Makes on the CPU what a program makes on a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if "cuda" in str(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        return function(*args, **kwargs)


class Tracker:
    """Forks no state: dropout is off."""

    def is_initialized(self):
        return True

    def fork(self, *_):
        return contextlib.nullcontext()


class Norm(torch.nn.LayerNorm):
    """A LayerNorm whose gradients Megatron-Core adds up over the ranks that share a sequence."""

    def __init__(self, config, hidden_size, eps=1e-5):
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


@contextlib.contextmanager
def on_the_cpu(monkeypatch):
    """Makes Megatron-Core run on CPUs."""
    import megatron.core.tensor_parallel.random as random
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(random, "_CUDA_RNG_STATE_TRACKER", Tracker())
    monkeypatch.setattr(random, "_CUDA_RNG_STATE_TRACKER_INITIALIZED", True)
    monkeypatch.setattr(WrappedTorchNorm, "__new__", lambda _, *told, **named: Norm(*told, **named))
    with Cpu():
        yield


def made(tensor, pipeline, virtual=None, layers=4, **told):
    """Makes the groups of a layout, and the parts of the GPT that this rank has in it."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor, pipeline, virtual, create_gloo_process_groups=False)
    config = TransformerConfig(
        num_layers=layers,
        hidden_size=32,
        num_attention_heads=4,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        virtual_pipeline_model_parallel_size=virtual,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        batch_p2p_sync=False,
        **told,
    )
    torch.manual_seed(0)
    parts = []
    for stage in range(virtual or 1):
        number = stage if virtual else None
        if virtual:
            parallel_state.set_virtual_pipeline_model_parallel_rank(stage)
        parts.append(
            GPTModel(
                config,
                get_gpt_layer_local_spec(),
                WORDS,
                SEQUENCE,
                pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=number),
                post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=number),
                vp_stage=number,
            )
        )
    return parts


def own_part(name, parameter, whole, part):
    """Returns a rank's part of a parameter of the whole model: its layers are numbered from the first of the part."""
    from megatron.core import parallel_state

    if name.startswith("decoder.layers."):
        number, rest = name.removeprefix("decoder.layers.").split(".", 1)
        name = f"decoder.layers.{part.decoder.layers[int(number)].layer_number - 1}.{rest}"
    value = whole[name].detach()
    if not getattr(parameter, "tensor_model_parallel", False):
        return value
    ranks = parallel_state.get_tensor_model_parallel_world_size()
    return value.chunk(ranks, parameter.partition_dim)[parallel_state.get_tensor_model_parallel_rank()]


def sentences(step, part, parts):
    """Returns microbatches of words (SAMPLES, SEQUENCE) and the words after them: those of a part of the data."""
    torch.manual_seed(1 + step)
    words = torch.randint(WORDS, (parts * MICROBATCHES, SAMPLES, SEQUENCE + 1))
    return words[part * MICROBATCHES : (part + 1) * MICROBATCHES]


def forward(data, model):
    """Megatron-Core's forward step: the scores of a microbatch, and the function of the loss."""
    words = next(data)
    places = torch.arange(SEQUENCE).expand(SAMPLES, -1)
    output = model(words[:, :-1], places, None, labels=words[:, 1:])
    return output, lambda losses: (losses.mean(), {"loss": losses.mean().detach()})


def step(parts, data):
    """Runs a forward and a backward of all microbatches by the schedule of the layout. Returns their mean loss."""
    from megatron.core.pipeline_parallel import get_forward_backward_func

    told = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=[iter(data) for _ in parts] if len(parts) > 1 else iter(data),
        model=parts,
        num_microbatches=len(data),
        seq_length=SEQUENCE,
        micro_batch_size=SAMPLES,
        forward_only=False,
    )
    return torch.stack([one["loss"] for one in told]).mean() if told else None


def compared(tensor=1, pipeline=1, virtual=None, layers=4, wraps=False, **told):
    """Trains a GPT in a layout, and compares parameters and losses with the same GPT on each rank for itself.

    Args:
        tensor: the number of ranks that share each layer.
        pipeline: the number of ranks that share the layers.
        virtual: the number of parts of the layers on each rank.
        layers: the number of layers.
        wraps: whether Megatron-Core's own data parallel averages gradients.
        told: further settings of Megatron-Core.
    """
    import pytest
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads

    with pytest.MonkeyPatch.context() as monkeypatch, on_the_cpu(monkeypatch):
        (alone,) = made(1, 1, layers=layers)
        update = torch.optim.SGD(alone.parameters(), lr=RATE)
        start = {name: value.detach().clone() for name, value in alone.named_parameters()}
        expected = []
        copies = dist.get_world_size() // (tensor * pipeline)
        for number in range(STEPS):
            update.zero_grad()
            expected.append(step([alone], sentences(number, 0, 1) if copies == 1 else sentences_of_all(number, copies)))
            update.step()
        whole = dict(alone.named_parameters())

        parts = made(tensor, pipeline, virtual, layers, **told)
        with torch.no_grad():
            for part in parts:
                for name, parameter in part.named_parameters():
                    parameter.copy_(own_part(name, parameter, start, part))
        config, trained = parts[0].config, parts
        if wraps:
            settings = DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=False)
            trained = [DistributedDataParallel(config, settings, part) for part in parts]
            config.finalize_model_grads_func = finalize_model_grads
        update = torch.optim.SGD([parameter for part in parts for parameter in part.parameters()], lr=RATE)
        copy = parallel_state.get_data_parallel_rank()
        for number in range(STEPS):
            update.zero_grad()
            for one in trained:
                if wraps:
                    one.zero_grad_buffer()
            loss = step(trained, sentences(number, copy, copies))
            if wraps:
                for part in parts:
                    for parameter in part.parameters():
                        parameter.grad = parameter.main_grad
            update.step()
            if loss is not None:
                dist.all_reduce(loss, group=parallel_state.get_data_parallel_group())
                torch.testing.assert_close(loss / copies, expected[number], rtol=LOOSE, atol=LOOSE)
        for part in parts:
            for name, parameter in part.named_parameters():
                wanted = own_part(name, parameter, whole, part)
                torch.testing.assert_close(parameter.detach(), wanted, rtol=LOOSE, atol=LOOSE)
        parallel_state.destroy_model_parallel()


def sentences_of_all(number, copies):
    """Returns the microbatches of all copies."""
    return torch.cat([sentences(number, copy, copies) for copy in range(copies)])


@feature(needs="megatron", world_sizes=(2,))
def tensor_parallel(here):
    compared(tensor=2)


@feature(needs="megatron", world_sizes=(2,))
def sequence_parallel(here):
    compared(tensor=2, sequence_parallel=True, wraps=True)


@feature(needs="megatron", world_sizes=(2, 4))
def pipeline_parallel(here):
    compared(pipeline=here.world_size)


@feature(needs="megatron", world_sizes=(2,))
def interleaved_pipeline(here):
    """On two ranks Megatron-Core wants sends that overlap: a batch would have two sends to the same rank."""
    compared(pipeline=2, virtual=2, overlap_p2p_comm=True, batch_p2p_comm=False)


@feature(needs="megatron", world_sizes=(4,))
def interleaved_pipeline_of_batches(here):
    compared(pipeline=4, virtual=2, layers=8)


@feature(needs="megatron", world_sizes=(2,))
def data_parallel(here):
    compared(wraps=True)


@feature(needs="megatron", world_sizes=(4,))
def tensor_and_pipeline_parallel(here):
    compared(tensor=2, pipeline=2)


@feature(needs="megatron", world_sizes=(4,))
def tensor_and_data_parallel(here):
    compared(tensor=2, wraps=True)
