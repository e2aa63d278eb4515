"""Frameworks on the virtual GPU: script, world size, ranks that run, and what each of them has to do in a step."""

from dataclasses import dataclass, field

from closed_forms import BF16, FP32, MIB, Transformer, around, attention_products

ANY = (0, float("inf"))


@dataclass(frozen=True)
class Expected:
    """What one rank does in a step.

    Attributes:
        flops: FLOPs of its products.
        calls: (number, bytes) of collectives by (pattern, ranks of the group, distance between them). Others have less
            than 64 KiB each.
        sends: (number, bytes) of its messages.
        peak: the least and the most bytes that tensors have at the peak.
        names: parts of names of operators, of which each is launched.
    """

    flops: int
    calls: dict = field(default_factory=dict)
    sends: tuple = (0, 0)
    peak: tuple = ANY
    names: tuple = ()


@dataclass(frozen=True)
class Row:
    """A script and what its ranks do.

    Attributes:
        name: for people.
        command: script in `scripts/` and its arguments; `{folder}` stands for that of `assets.py`.
        world_size: number of ranks.
        ranks: what each rank does that runs; the dry run finds them.
        needs: package, if it is not torch.
        is_long: half a minute and more, so only with ``--slow``.
    """

    name: str
    command: str
    world_size: int
    ranks: dict
    needs: str = "torch"
    is_long: bool = False


def one_rank(name, command, world_size, expected, **more):
    """Returns a row of which rank 0 runs."""
    return Row(name, command, world_size, {0: expected}, **more)


MODEL = Transformer()


def gathered(ranks, stride=1, passes=1):
    """Returns the collectives of fully sharded data parallelism, gradients in fp32.

    Blocks are gathered in the forward pass and again in the backward pass; the root stays.
    """
    calls = {
        ("all_gather", ranks, stride): (
            passes * (1 + 2 * MODEL.layers),
            passes * BF16 * (MODEL.root + 2 * MODEL.layers * MODEL.block),
        ),
        ("reduce_scatter", ranks, stride): (MODEL.layers + 1, FP32 * MODEL.parameters),
    }
    return calls


def sharded_peak(ranks, kept_blocks=None, more=0):
    """Returns the interval of the peak of fully sharded data parallelism: the gathered root stands, too."""
    standing = MODEL.sharded_states(ranks) + BF16 * (MODEL.root + MODEL.block) + more
    return around(MODEL.peak(standing, kept_blocks))


RECOMPUTED = 8 * MODEL.width**2  # of a block's 12: torch stops before the last product, whose result nobody needs

FULLY_SHARDED = [
    one_rank(
        "FSDP2, fused AdamW",
        "fully_shard.py --optimizer fused",
        512,
        Expected(MODEL.flops, gathered(512), peak=sharded_peak(512), names=("_fused_adamw_", "cudnn_attention")),
    ),
    one_rank(
        "HSDP",
        "fully_shard.py --shards 8",
        64,
        Expected(
            MODEL.flops,
            gathered(8) | {("all_reduce", 8, 8): (MODEL.layers + 1, FP32 * MODEL.parameters // 8)},
            peak=sharded_peak(8),
        ),
    ),
    one_rank(
        "FSDP2, activation checkpointing, foreach AdamW",
        "fully_shard.py --checkpoint --optimizer foreach",
        64,
        Expected(
            MODEL.flops + 2 * MODEL.tokens * MODEL.layers * RECOMPUTED,
            gathered(64),
            peak=(MODEL.loss_bytes, sharded_peak(64, 1)[1]),
            names=("_foreach_",),
        ),
    ),
    one_rank(
        "FSDP2, gradients of two micro-batches, AdamW in a loop",
        "fully_shard.py --accumulate 2 --optimizer loop",
        64,
        Expected(
            2 * MODEL.flops,
            gathered(64, passes=2),
            peak=sharded_peak(64, more=FP32 * MODEL.parameters),  # gradients of the first, not yet reduced
            names=("addcdiv_",),
        ),
    ),
    one_rank("FSDP1", "fsdp1.py", 64, Expected(MODEL.flops, gathered(64), peak=sharded_peak(64))),
]

BETWEEN = MODEL.tokens * MODEL.width * BF16  # bytes of activations between blocks
PARALLEL_BLOCK = MODEL.block_products // 8 + 2 * MODEL.width
PARALLEL_ROOT = 2 * MODEL.head // 8 + MODEL.width
EXCHANGES = 4 * MODEL.layers + 2  # two of a block in each pass; the embedding's in one pass, the head's in the other
PARALLEL_SHARDS = {
    ("all_gather", 8, 8): (1 + 2 * MODEL.layers, BF16 * (PARALLEL_ROOT + 2 * MODEL.layers * PARALLEL_BLOCK)),
    ("reduce_scatter", 8, 8): (MODEL.layers + 1, FP32 * (PARALLEL_ROOT + MODEL.layers * PARALLEL_BLOCK)),
}
WORKSPACE = 34 * MIB  # of cuBLAS on Hopper, and what is rounded up


def parallel_peak(widths):
    """Returns the interval of the peak of tensor parallelism, with widths of activations of a token in each block."""
    gathered_root = BF16 * (PARALLEL_ROOT + PARALLEL_BLOCK)
    nbytes = MODEL.layers * widths * BETWEEN + MODEL.loss_bytes // 8 + gathered_root
    return nbytes, nbytes + WORKSPACE


LOSS = 3 * MODEL.tokens * FP32  # parallel loss: maximum, sum and the target's logit of each token

TENSOR_PARALLEL = [
    one_rank(
        "DTensor TP, loss parallel",
        "tensor_parallel.py",
        64,
        Expected(
            MODEL.flops // 8,
            PARALLEL_SHARDS | {("all_reduce", 8, 1): (EXCHANGES + 3, EXCHANGES * BETWEEN + LOSS)},
            # input, norm, sum, norm of all; q, k, v, attention and the MLP in parts
            peak=parallel_peak(4 + 12 / 8),
        ),
    ),
    one_rank(
        "DTensor TP and SP, loss parallel",
        "tensor_parallel.py --sequence",
        64,
        Expected(
            MODEL.flops // 8,
            PARALLEL_SHARDS
            | {
                ("all_gather", 8, 1): (EXCHANGES, EXCHANGES * BETWEEN),
                ("reduce_scatter", 8, 1): (EXCHANGES, EXCHANGES * BETWEEN),
                # and the gradient of each norm, of which each rank saw a part of the sequence
                ("all_reduce", 8, 1): (
                    3 + 2 * MODEL.layers + 1,
                    LOSS + (2 * MODEL.layers + 1) * MODEL.width * FP32,
                ),
            },
            # the two inputs that were gathered; all others in parts
            peak=parallel_peak(2 + 14 / 8),
        ),
    ),
]

KEYS_AND_VALUES = 8 * 2 * BETWEEN  # of the whole sequence, whose eighth is a rank's
CONTEXT_PARALLEL = one_rank(
    "context parallelism",
    "context_parallel.py",
    64,
    Expected(
        MODEL.flops,
        gathered(64)
        | {
            ("all_gather", 8, 1): (2 * MODEL.layers, 2 * MODEL.layers * KEYS_AND_VALUES),
            # gradients of keys and values in fp32 once around the ring
            ("all_to_all", 8, 1): (8 * MODEL.layers, 8 * MODEL.layers * 2 * BETWEEN // BF16 * FP32),
        },
        peak=sharded_peak(64),
    ),
)

MICRO = Transformer(tokens=1024)  # one micro-batch of a pipeline: one sequence
STAGE_FLOPS = 6 * MICRO.tokens * MICRO.block_products
MESSAGE = MICRO.tokens * MICRO.width * BF16


def pipeline(schedule, chunks, sends, in_flight, head_on, is_long):
    """Returns the row of a schedule for 8 micro-batches on 4 ranks.

    Args:
        schedule: its name in torch.
        chunks: stages of each rank.
        sends: messages of each rank for a micro-batch.
        in_flight: micro-batches of a stage whose activations each rank keeps.
        head_on: the rank of the last stage.
        is_long: see `Row`.
    """
    ranks = {}
    for rank in range(4):
        ends = (rank == 0) + (rank == head_on)  # embedding, head
        states = 4 * BF16 * (chunks * MICRO.block + ends * MICRO.head)  # weight, gradient and two moments
        kept = states + in_flight[rank] * MICRO.block_activations + (MICRO.loss_bytes if rank == head_on else 0)
        flops = 8 * (chunks * STAGE_FLOPS + (6 * MICRO.tokens * MICRO.head if rank == head_on else 0))
        # besides them workspaces, and what a backward pass makes: up to four blocks with separate passes for weights
        peak = (kept, kept + WORKSPACE + (4 if "Zero" in schedule else 2) * MICRO.block_activations + 24 * MIB)
        ranks[rank] = Expected(flops, sends=(8 * sends[rank], 8 * sends[rank] * MESSAGE), peak=peak)
    command = f"pipeline.py --schedule {schedule} --chunks {chunks}"
    return Row(f"pipelining, {schedule}", command, 4, ranks, is_long=is_long)


PIPELINES = [
    pipeline("1F1B", 1, [1, 2, 2, 1], [4, 3, 2, 1], head_on=3, is_long=False),
    pipeline("Interleaved1F1B", 2, [3, 4, 4, 3], [11, 9, 7, 5], head_on=3, is_long=True),
    pipeline("ZBVZeroBubble", 2, [2, 4, 4, 2], [8, 8, 8, 8], head_on=0, is_long=True),
]

TWO_LAYERS = Transformer(layers=2)
ROUTED = 2 * MODEL.tokens  # rows: two experts of each token
ROUTER = 64 * MODEL.width
EXPERT = 2 * MODEL.width * 2 * MODEL.width
EXPERTS = one_rank(
    "expert parallelism",
    "experts.py",
    64,
    Expected(
        # the first layer's input needs no gradient: q, k and v have one product fewer
        6 * MODEL.tokens * 2 * (4 * MODEL.width**2 + ROUTER)
        - 2 * MODEL.tokens * 3 * MODEL.width**2
        + 6 * ROUTED * 2 * EXPERT,
        {
            ("all_reduce", 64, 1): (2, BF16 * 2 * (4 * MODEL.width**2 + ROUTER)),
            # rows there and back, in both passes; and the counts, 64 of 8 bytes in each layer
            ("all_to_all", 8, 1): (2 * 4 + 2, 2 * 4 * ROUTED * MODEL.width * BF16 + 2 * 64 * 8),
        },
        # weights and gradients of 8 experts; and activations: rows are seven widths, others four
        peak=(2 * 2 * 8 * EXPERT * BF16, 2 * 2 * 8 * EXPERT * BF16 + 2 * (7 * ROUTED + 8 * MODEL.tokens) * 512 * BF16),
    ),
)

GPT2_PRODUCTS = 12 * 12 * 768**2 + 50257 * 768  # the head shares the embedding's weight
GPT2 = one_rank(
    "DDP, GPT-2 of transformers, fp16 with GradScaler",
    "ddp_gpt2.py",
    64,
    Expected(
        6 * 8 * 1024 * GPT2_PRODUCTS,
        {("all_reduce", 64, 1): (13, FP32 * 124_439_808)},  # buckets of 25 MiB and more
        # weights, gradients, buckets and moments; logits in fp16, and in fp32 log-probabilities and two gradients
        peak=(4 * FP32 * 124_439_808 + 8192 * 50257 * (BF16 + 3 * FP32), 16 * 2**30),
        names=("_amp_foreach_non_finite_check_and_unscale_",),
    ),
    needs="transformers",
)

FLOAT8 = one_rank(
    "FSDP2, float8 of torchao",
    "fully_shard.py --float8",
    64,
    Expected(MODEL.flops, gathered(64), peak=sharded_peak(64), names=("_scaled_mm",)),
    needs="torchao",
)

COMPILED = [
    one_rank(
        "DDP, torch.compile",
        "compiled.py",
        64,
        Expected(
            TWO_LAYERS.flops,
            {("all_reduce", 64, 1): (3, FP32 * TWO_LAYERS.parameters)},
            # weights, gradients, buckets and moments
            peak=(5 * FP32 * TWO_LAYERS.parameters, TWO_LAYERS.peak(5 * FP32 * TWO_LAYERS.parameters)),
            names=("triton_",),
        ),
        needs="triton",
        is_long=True,
    ),
    one_rank(
        "FSDP2, torch.compile of blocks",
        "fully_shard.py --compile",
        64,
        Expected(MODEL.flops, gathered(64), peak=(MODEL.loss_bytes, sharded_peak(64)[1]), names=("triton_",)),
        needs="triton",
        is_long=True,
    ),
]

GRAPH = one_rank(
    "CUDA graph",
    "cuda_graph.py",
    64,
    Expected(
        TWO_LAYERS.flops,
        {("all_reduce", 64, 1): (TWO_LAYERS.tensors, BF16 * TWO_LAYERS.parameters)},
        # weights, gradients and moments; activations in the graph's own pool
        peak=around(TWO_LAYERS.peak(4 * BF16 * TWO_LAYERS.parameters), 1.0, 1.2),
    ),
)

BATCH_NORMS = 64 + 3 * (64 + 128 + 256 + 512)  # channels of 13 layers
STAGES = [(64, 64, 56), (64, 128, 28), (128, 256, 14), (256, 512, 7)]  # channels in and out, and the side of an image
FIRST = 3 * 64 * 7**2  # weights of the first convolution
CONVOLUTIONS = [9 * (i * o + o * o) + i * o for i, o, _ in STAGES]
CLASSIFIER = 512 * 1000
NETWORK = FIRST + sum(CONVOLUTIONS) + 2 * BATCH_NORMS + CLASSIFIER + 1000
CONVOLUTION_FLOPS = 64 * (
    2 * 2 * FIRST * 112**2  # images need no gradient
    + sum(6 * weights * side**2 for weights, (_, _, side) in zip(CONVOLUTIONS, STAGES, strict=True))
    + 6 * CLASSIFIER
)
CONVOLUTION_PEAK = (4 * FP32 * NETWORK, 2**30)  # weights, gradients, buckets, momentum, and images of 64 x 224 x 224
CONVOLUTIONAL = [
    one_rank(
        "DDP, convolutions",
        "convolutions.py",
        64,
        Expected(CONVOLUTION_FLOPS, {("all_reduce", 64, 1): (2, FP32 * NETWORK)}, peak=CONVOLUTION_PEAK),
    ),
    one_rank(
        "DDP, SyncBatchNorm",
        "convolutions.py --sync-batchnorm",
        16,
        Expected(
            CONVOLUTION_FLOPS,
            {
                # mean and variance of each channel, and a count for each layer; their gradients are summed
                ("all_gather", 16, 1): (13, 16 * FP32 * (2 * BATCH_NORMS + 13)),
                ("all_reduce", 16, 1): (13 + 2, FP32 * (NETWORK + 2 * BATCH_NORMS)),
            },
            peak=CONVOLUTION_PEAK,
        ),
    ),
]

TORCH = [
    *FULLY_SHARDED,
    *TENSOR_PARALLEL,
    CONTEXT_PARALLEL,
    *PIPELINES,
    EXPERTS,
    FLOAT8,
    *COMPILED,
    GRAPH,
    *CONVOLUTIONAL,
]

# Llama of trainer.py: width 1024, MLP of 2816, 4 of 16 heads for keys and values, 32,000 words
LLAMA_DOWN = 1024 * 2816
LLAMA_BLOCK = 2 * 1024**2 + 2 * 1024 * 256 + 3 * LLAMA_DOWN
LLAMA_HEAD = 32000 * 1024
LLAMA = 4 * (LLAMA_BLOCK + 2 * 1024) + 2 * LLAMA_HEAD + 1024
TRAINER = one_rank(
    "Trainer of transformers, FSDP2 of accelerate",
    "trainer.py",
    64,
    Expected(
        # blocks are computed again but for their last product
        2048 * (4 * (8 * LLAMA_BLOCK - 2 * LLAMA_DOWN) + 6 * LLAMA_HEAD),
        {
            # each block twice, the embedding twice, head and norm once; and a number of tokens of each rank
            ("all_gather", 64, 1): (
                12,
                BF16 * (4 * 2 * (LLAMA_BLOCK + 2 * 1024) + 3 * LLAMA_HEAD + 1024) + 64 * 8,
            ),
            ("reduce_scatter", 64, 1): (6, BF16 * LLAMA),
        },
        peak=(2048 * 32000 * (BF16 + 2 * FP32), 2 * 2**30),
    ),
    needs="accelerate",
)

GENERATING = one_rank(
    "generate of transformers, a reference model, DDP",
    "generating.py",
    64,
    Expected(
        # the prompt and all but the last of 32 tokens, with logits of the last position; then 96 tokens two times
        2 * (95 * 4 * LLAMA_BLOCK + 32 * LLAMA_HEAD) + (2 + 6) * 96 * (4 * LLAMA_BLOCK + LLAMA_HEAD),
        {("all_reduce", 64, 1): (5, BF16 * LLAMA)},
        peak=(5 * BF16 * LLAMA, 2 * 2**30),
    ),
    needs="transformers",
)

TWO_LINEAR = 2 * 4 * 1024**2 + 4 * 1024 + 1024


def lightning(strategy, calls, peak, needs="lightning"):
    """Returns the row of a strategy of Lightning: two linear layers, batches of 32 rows that need no gradient."""
    expected = Expected(5 * 2 * 32 * 4 * 1024**2, {(call, 16, 1): made for call, made in calls.items()}, peak=peak)
    return one_rank(f"Lightning, {strategy}", f"lightning_fit.py {strategy}", 16, expected, needs=needs)


ONCE = BF16 * TWO_LINEAR
LIGHTNING = [
    # weights, gradients, their buckets and moments in fp32; and what AdamW makes on the way
    lightning("ddp", {"all_reduce": (2, FP32 * TWO_LINEAR)}, (20 * TWO_LINEAR, 36 * TWO_LINEAR)),
    # all weights and gradients once, in bf16 and as they are reduced
    lightning("fsdp", {"all_gather": (1, ONCE), "reduce_scatter": (1, ONCE)}, (4 * TWO_LINEAR, 12 * TWO_LINEAR)),
    # a bucket of 200 million elements, as Lightning sets it
    lightning(
        "deepspeed_stage_3",
        {"all_gather": (3, ONCE), "reduce_scatter": (1, ONCE)},
        (BF16 * 2e8, BF16 * 2e8 + 12 * TWO_LINEAR),
        needs="deepspeed",
    ),
]


def zero(stage, calls):
    """Returns the row of a stage of ZeRO. Each stage sends each gradient and each weight once, in bf16."""
    bucket = BF16 * 500_000_000  # DeepSpeed's own
    expected = Expected(MODEL.flops, calls, peak=around(MODEL.peak(MODEL.sharded_states(64)) + bucket, 0.9, 1.1))
    return one_rank(f"DeepSpeed, ZeRO {stage}", f"deepspeed_zero.py --stage {stage}", 64, expected, needs="deepspeed")


WEIGHTS = BF16 * MODEL.parameters
DEEPSPEED = [
    *(
        # 5 bytes beside the gradients: a norm and whether numbers were finite
        zero(stage, {("all_gather", 64, 1): (1, WEIGHTS), ("all_reduce", 64, 1): (3, WEIGHTS + 5)})
        for stage in (1, 2)
    ),
    zero(3, {("all_gather", 64, 1): (10, WEIGHTS), ("reduce_scatter", 64, 1): (1, WEIGHTS)}),
]

# GPT of megatron_gpt.py: 4 layers of width 512, sequences of 1,024, two LayerNorms with weight and bias in each layer
NORMS = 4 * MICRO.width
POSITIONS = 1024 * MICRO.width
ATTENTION = attention_products(1024, MICRO.width, 1)


EXPERT_WEIGHTS = 2 * MICRO.width * 1024  # of one of 16 experts, of which a rank has two


def megatron(name, arguments, ranks):
    """Returns a row of Megatron-Core on 16 ranks."""
    return Row(f"Megatron-Core, {name}", f"megatron_gpt.py {arguments}", 16, ranks, needs="megatron.core")


def optimizer_of(weights, group, gathers=1):
    """Returns the collectives of the distributed optimizer: gradients once, then weights, in bf16."""
    return {
        ("reduce_scatter", *group): (1, BF16 * weights),
        ("all_gather", *group): (gathers, gathers * BF16 * weights),
    }


def pipeline_stage(own, flops):
    """Returns what a stage of two layers does with 4 micro-batches of which each is one sequence."""
    weights = 2 * (MICRO.block_products + NORMS) + MICRO.head + own
    products = 4 * (2 * (STAGE_FLOPS + ATTENTION) + flops)
    return Expected(products, optimizer_of(weights, (8, 1)), sends=(4, 4 * MESSAGE), peak=(14 * weights, 512 * MIB))


MEGATRON = [
    megatron(
        "EP 8, distributed optimizer",
        "--expert-model-parallel-size 8 --num-experts 16",
        {
            0: Expected(
                6 * MICRO.tokens * (4 * (4 * MICRO.width**2 + 16 * MICRO.width + 2 * EXPERT_WEIGHTS) + MICRO.head)
                + 4 * ATTENTION,
                {
                    # the optimizers of dense weights and of experts both gather all weights
                    **optimizer_of(
                        4 * (4 * MICRO.width**2 + 16 * MICRO.width + NORMS) + 2 * MICRO.head + POSITIONS + NORMS // 2,
                        (16, 1),
                        gathers=2,
                    ),
                    **optimizer_of(4 * 2 * EXPERT_WEIGHTS, (2, 8), gathers=2),
                    # rows there and back, with the weight of each there; in both passes
                    ("all_to_all", 8, 1): (24, 4 * 2 * MICRO.tokens * BF16 * (4 * MICRO.width + 2)),
                },
                peak=(18 * 4 * 2 * EXPERT_WEIGHTS, 640 * MIB),
            )
        },
    ),
    megatron(
        "TP 2, distributed optimizer",
        "--tensor-model-parallel-size 2",
        {
            0: Expected(
                (MICRO.flops + 4 * ATTENTION) // 2,
                optimizer_of(
                    4 * (MICRO.block_products // 2 + NORMS) + 2 * MICRO.head // 2 + POSITIONS + NORMS // 2, (8, 2)
                )
                | {("all_reduce", 2, 1): (EXCHANGES + 3, EXCHANGES * MESSAGE + 3 * MICRO.tokens * FP32)},
                # scores and probabilities of four heads in each layer, twice as much with masks and in fp32
                peak=(4 * 4 * 1024**2 * 2 * BF16, 320 * MIB),
            )
        },
    ),
    megatron(
        "PP 2, distributed optimizer",
        "--pipeline-model-parallel-size 2 --micro-batches 4",
        {
            0: pipeline_stage(POSITIONS, 0),
            8: pipeline_stage(NORMS // 2, 6 * MICRO.tokens * MICRO.head),
        },
    ),
]

# torchtitan's Llama 3 for tests: 6 layers of width 256, MLP of 768, 2,048 words; 8 sequences of 2,048 tokens
TITAN_ASSETS = (
    "--hf-assets-path {folder}/tokenizer --dataloader.dataset-path {folder}/texts --dump-folder {folder}/outputs"
)
TITAN_TOKENS = 8 * 2048
TITAN_WIDTH = TITAN_TOKENS * 256 * BF16  # bytes of a width of all tokens
TITAN_BLOCK = 4 * 256**2 + 3 * 256 * 768
TITAN_HEAD = 2048 * 256

# its DeepSeek-V3 for tests, of the same width: 16 heads of 128 + 64 and 128, keys and values through 512 and 64;
# one layer with an MLP of 1,024, five with 8 experts of 256 of which a token has 3, and an MLP of 512 for all tokens
LATENT_KEYS = 256 * (512 + 64)
LATENT_OUTPUT = 16 * 128 * 256
LATENT_ATTENTION = 256 * 16 * 192 + LATENT_KEYS + 512 * 16 * 256 + LATENT_OUTPUT
DEEPSEEK_ROUTER = 8 * 256
DEEPSEEK_EXPERT = 3 * 256 * 256
DEEPSEEK_MLPS = 3 * 256 * 1024 + 5 * 3 * 256 * 512
DEEPSEEK_PRODUCTS = 6 * LATENT_ATTENTION + DEEPSEEK_MLPS + 5 * DEEPSEEK_ROUTER + TITAN_HEAD
DEEPSEEK_AGAIN = 6 * (LATENT_KEYS + LATENT_OUTPUT) + DEEPSEEK_MLPS // 3 + 5 * DEEPSEEK_ROUTER
# what 64 ranks share of each layer: norms, too, and one row of the router for each rank, where it has 8
DEEPSEEK_FIRST = LATENT_ATTENTION + 3 * 256 * 1024 + 4 * 256
DEEPSEEK_LAYER = LATENT_ATTENTION + 3 * 256 * 512 + 4 * 256 + 64 * 256
DEEPSEEK_LAYERS = DEEPSEEK_FIRST + 5 * DEEPSEEK_LAYER
TITAN = [
    one_rank(
        "torchtitan, Llama 3",
        f"titan.py --module llama3 --config llama3_debugmodel {TITAN_ASSETS}",
        64,
        Expected(
            # selective checkpointing computes every second product again: that of attention's output, one of the MLP
            TITAN_TOKENS * (6 * (6 * TITAN_BLOCK + TITAN_HEAD) + 2 * 6 * (256**2 + 256 * 768)),
            {
                # each block twice, the embedding twice, norm and head three times
                ("all_gather", 64, 1): (
                    17,
                    BF16 * (2 * 6 * (TITAN_BLOCK + 2 * 256) + 5 * TITAN_HEAD + 3 * 256),
                ),
                ("reduce_scatter", 64, 1): (9, FP32 * (6 * (TITAN_BLOCK + 2 * 256) + 2 * TITAN_HEAD + 256)),
            },
            peak=(6 * 8 * TITAN_WIDTH, 6 * 20 * TITAN_WIDTH),  # 8 to 20 widths of each token in each layer
            names=("flex_attention",),
        ),
        needs="torchtitan",
        is_long=True,
    ),
    one_rank(
        "torchtitan, DeepSeek-V3, EP 8",
        f"titan.py --module deepseek_v3 --config deepseek_v3_debugmodel {TITAN_ASSETS}"
        " --training.disable_cuda_graphs --parallelism.expert_parallel_degree 8",
        64,
        Expected(
            # every second product again, and all of the experts'
            TITAN_TOKENS * (6 * DEEPSEEK_PRODUCTS + 2 * DEEPSEEK_AGAIN + 8 * 5 * 3 * DEEPSEEK_EXPERT),
            {
                ("all_gather", 64, 1): (17, BF16 * (2 * DEEPSEEK_LAYERS + 5 * TITAN_HEAD + 3 * 256)),
                ("reduce_scatter", 64, 1): (9, FP32 * (DEEPSEEK_LAYERS + 2 * TITAN_HEAD + 256)),
                # experts of 5 layers on ranks with equal experts
                ("all_gather", 8, 8): (10, 2 * BF16 * 5 * DEEPSEEK_EXPERT),
                ("reduce_scatter", 8, 8): (5, FP32 * 5 * DEEPSEEK_EXPERT),
                # three of eight experts of each token, there and back in both passes and again there; and counts twice
                ("all_to_all", 8, 1): (
                    5 * (6 + 2),
                    5 * (6 * 3 * TITAN_TOKENS * 256 * BF16 + 2 * 8 * 8),
                ),
            },
            peak=(6 * 40 * TITAN_WIDTH, 6 * 90 * TITAN_WIDTH),  # queries are 12 widths, keys and values 20
            names=("flex_attention", "_grouped_mm"),
        ),
        needs="torchtitan",
        is_long=True,
    ),
]

ROWS = [*TORCH, GPT2, TRAINER, GENERATING, *LIGHTNING, *DEEPSPEED, *MEGATRON, *TITAN]
