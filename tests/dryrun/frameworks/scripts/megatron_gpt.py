"""Megatron-Core: a GPT with tensor, pipeline and expert parallelism, and the distributed optimizer."""

import argparse
import os

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import moe_utils

if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = (
        None  # without Transformer Engine, Megatron-Core 0.16 reads a name that it did not import
    )

SEQUENCE, VOCABULARY = 1024, 4096

parser = argparse.ArgumentParser()
parser.add_argument("--tensor-model-parallel-size", type=int, default=1)
parser.add_argument("--pipeline-model-parallel-size", type=int, default=1)
parser.add_argument("--expert-model-parallel-size", type=int, default=1)
parser.add_argument("--num-experts", type=int)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--hidden-size", type=int, default=512)
parser.add_argument("--micro-batches", type=int, default=1)
args = parser.parse_args()

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
sizes = {
    "tensor_model_parallel_size": args.tensor_model_parallel_size,
    "pipeline_model_parallel_size": args.pipeline_model_parallel_size,
    "expert_model_parallel_size": args.expert_model_parallel_size,
}
parallel_state.initialize_model_parallel(**sizes, create_gloo_process_groups=False)
tensor_parallel.model_parallel_cuda_manual_seed(1)

experts = {}
if args.num_experts:
    experts = {
        "num_moe_experts": args.num_experts,
        "moe_router_topk": 2,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "none",
        "moe_ffn_hidden_size": 1024,
    }
config = TransformerConfig(
    num_layers=args.layers,
    hidden_size=args.hidden_size,
    num_attention_heads=8,
    add_bias_linear=False,
    bf16=True,
    params_dtype=torch.bfloat16,
    pipeline_dtype=torch.bfloat16,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    gradient_accumulation_fusion=False,
    finalize_model_grads_func=finalize_model_grads,
    **sizes,
    **experts,
)
model = GPTModel(
    config,
    get_gpt_layer_local_spec(num_experts=args.num_experts, moe_grouped_gemm=False),
    vocab_size=VOCABULARY,
    max_sequence_length=SEQUENCE,
    pre_process=parallel_state.is_pipeline_first_stage(),
    post_process=parallel_state.is_pipeline_last_stage(),
    share_embeddings_and_output_weights=False,
)
wrapping = DistributedDataParallelConfig(overlap_grad_reduce=True, use_distributed_optimizer=True)
model = DistributedDataParallel(config, wrapping, Float16Module(config, model.cuda()))
settings = OptimizerConfig(
    optimizer="adam", lr=3e-4, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True
)
optimizer = get_megatron_optimizer(settings, [model], use_gloo_process_groups=False)


def mean(losses):
    return losses.float().mean(), {}


def forward(batches, model):
    tokens = torch.randint(0, VOCABULARY, (1, SEQUENCE), device="cuda")
    positions = torch.arange(SEQUENCE, device="cuda")[None]
    mask = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool, device="cuda").triu(1)
    return model(tokens, positions, mask, labels=tokens), mean


run = get_forward_backward_func()
for _ in range(100):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    run(
        forward_step_func=forward,
        data_iterator=None,
        model=model,
        num_microbatches=args.micro_batches,
        seq_length=SEQUENCE,
        micro_batch_size=1,
        forward_only=False,
    )
    optimizer.step()
dist.destroy_process_group()
