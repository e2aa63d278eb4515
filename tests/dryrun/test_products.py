"""Products that an operator computes in kernels of its own are found by its shapes: experts, convolutions."""

import json
from dataclasses import replace

import pytest
from dryrun_recordings import Log

from nvcoll.dryrun.parent.products import GRADIENTS, grouped, is_depthwise
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.wire.rank_recording import Op
from nvcoll.dryrun.wire.virtual_gpu import Kind
from nvcoll.training import Machine

ROWS, WIDTH, HIDDEN, EXPERTS = 4096, 512, 1024, 8
ENDS = ((EXPERTS,), "int32")
FORMS = {
    "rows by weights": [(ROWS, WIDTH), (EXPERTS, WIDTH, HIDDEN)],
    "weights by columns": [(EXPERTS, HIDDEN, WIDTH), (WIDTH, ROWS)],
    "gradients of weights": [(WIDTH, ROWS), (ROWS, HIDDEN)],
}


@pytest.mark.parametrize("form", FORMS)
def test_experts_multiply_each_row_once(form):
    inputs = tuple((shape, "bfloat16") for shape in FORMS[form])
    row = grouped(Op("aten::_grouped_mm", inputs=(*inputs, ENDS)))
    assert 2 * row["m"] * row["n"] * row["k"] * row["batch"] == 2 * ROWS * WIDTH * HIDDEN
    assert (row["batch"], row["dtype"], row["experts"]) == (EXPERTS, "bf16", 1)
    assert min(row["m"], row["n"], row["k"]) == ROWS / EXPERTS


def test_other_operators_are_no_products_of_experts():
    assert grouped(Op("aten::mm", inputs=(((8, 8), "bfloat16"), ((8, 8), "bfloat16")))) is None


def test_a_depthwise_convolution_takes_the_time_of_its_bytes_and_has_flops():
    images, channels = ((128, 128, 56, 56), "float16"), 128
    filters = ((channels, 1, 7, 7), "float16")
    flops = 2 * 128 * channels * 56 * 56 * 49
    log = Log()
    log.launch(log.op("aten::convolution", 1 << 28, images, filters, flops=flops))
    log.launch(log.op("aten::convolution_backward", 1 << 29, images, images, filters, flops=2 * flops), count=2)
    step = made_of([log.recording()], gpu="h100-sxm", name="one").step
    works = [(op["work"], op["bytes"]) for op in json.loads(step.to_json())["streams"]["ranks"][0]["issued"]]
    assert works == [("move", 1 << 28), ("move", GRADIENTS * (1 << 29))]
    assert step.flops(0) == 3 * flops and step.model_flops == 16 * 3 * flops


def test_a_convolution_of_one_channel_is_not_depthwise():
    one = Op("aten::convolution", inputs=(((32, 1, 28, 28), "float32"), ((16, 1, 3, 3), "float32")))
    assert not is_depthwise(one)


@pytest.mark.parametrize("groups", [1, 4, 32])
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
def test_each_gradient_of_a_convolution_has_the_flops_of_its_forward_pass(groups, transposed):
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside.rules import Rule

    aten = torch.ops.aten
    images, filters = torch.randn(2, 32, 8, 8), torch.randn(32, 32 // groups, 3, 3)
    how = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], groups)
    made = aten.convolution(images, filters, None, *how)
    once = Rule(aten.convolution.default).flops_of((images, filters, None, *how), {}, made)
    assert once == 2 * 2 * 32 * 64 * (32 // groups) * 9
    for wanted in ([True, True, False], [True, False, False], [False, True, True]):
        given = (made, images, filters, [32], *how, wanted)
        back = Rule(aten.convolution_backward.default).flops_of(given, {}, aten.convolution_backward(*given))
        assert back == once * sum(wanted[:2])


def issued_of(log):
    step = made_of([log.recording()], gpu="h100-sxm", name="one").step
    return step, json.loads(step.to_json())["streams"]["ranks"][0]["issued"]


def dnn(log, name, sizes, op, channels_first=False, batch=1):
    """Appends a product as cuDNN's convolutions are logged."""
    row = [*sizes, batch, 2 * channels_first, 2 | 2 << 8 | 68 << 32]
    log.add(Kind.GEMM, 7, name, op, *row)


@pytest.mark.parametrize("channels_first", [False, True])
def test_a_convolution_of_cudnn_moves_each_image_once_and_transposes_channels_that_come_first(channels_first):
    images, filters = ((64, 256, 56, 56), "float16"), ((128, 256, 3, 3), "float16")
    result = ((64, 128, 56, 56), "float16")
    pixels, shares = 64 * 56 * 56, [2 * 64 * 56 * 56 * 256, 2 * 64 * 56 * 56 * 128, 2 * 128 * 256 * 9]
    log = Log()
    flops = 2 * pixels * 128 * 256 * 9
    forward = log.op("aten::convolution", sum(shares), images, filters, flops=flops)
    dnn(log, "cudnnConvolutionForward", (pixels, 128, 256 * 9), forward, channels_first)
    backward = log.op("aten::convolution_backward", 0, result, images, filters, flops=2 * flops)
    dnn(log, "cudnnConvolutionBackwardFilter", (128, 256 * 9, pixels), backward, channels_first)
    step, issued = issued_of(log)
    assert step.flops(0) == 2 * flops
    assert [op["bytes"] for op in issued if op["work"] == "gemm"] == [sum(shares)] * 2
    read = [2 * shares[0], 2 * sum(shares[:2])]
    assert [op["bytes"] for op in issued if op["work"] == "move"] == (read if channels_first else [])


def test_a_depthwise_convolution_of_cudnn_takes_the_time_of_its_bytes():
    images, filters = ((64, 96, 56, 56), "float16"), ((96, 1, 3, 3), "float16")
    log = Log()
    op = log.op("aten::convolution", 1 << 28, images, filters, flops=2 * 64 * 96 * 56 * 56 * 9)
    dnn(log, "cudnnConvolutionForward", (64 * 56 * 56, 1, 9), op, batch=96)
    step, [only] = issued_of(log)
    assert (only["work"], only["bytes"]) == ("move", 1 << 28) and step.flops(0) == 2 * 64 * 96 * 56 * 56 * 9


def test_the_bias_of_a_convolution_is_added_to_all_pixels():
    images, filters, bias = ((64, 96, 56, 56), "float16"), ((32, 96, 1, 1), "float16"), ((32,), "float16")
    pixels, log = 64 * 56 * 56, Log()
    moved = 2 * (pixels * (96 + 32) + 32 * 96)
    op = log.op("aten::convolution", moved, images, filters, bias, flops=2 * pixels * 32 * 96)
    dnn(log, "cudnnConvolutionForward", (pixels, 32, 96), op)
    log.launch(op)
    _, [_, added] = issued_of(log)
    assert added["bytes"] == 2 * 2 * pixels * 32


QUANTISED = {
    "int4": ((128, 256, 32, 4), "int32", 1024 * 4096 // 2, 1.5),
    "int8": ((1024, 4096), "int8", 1024 * 4096, 1),
}


@pytest.mark.parametrize("weight", QUANTISED)
@pytest.mark.parametrize("rows", [1, 4096])
def test_quantised_weights_count_at_their_width_and_multiply_at_the_rate_of_activations(weight, rows):
    shape, dtype, nbytes, passes = QUANTISED[weight]
    log = Log()
    row = log.op(f"aten::_weight_{weight}pack_mm", nbytes, ((rows, 4096), "bfloat16"), (shape, dtype))
    log.ops[row] = replace(log.ops[row], flops=2 * rows * 4096 * 1024)
    log.launch(row)
    step, [only] = issued_of(log)
    assert (only["work"], only["dtype"], only["bytes"]) == ("gemm", "bf16", passes * nbytes)
    assert (only["m"], only["n"], only["k"]) == (rows, 1024, 4096) and step.flops(0) == 2 * rows * 4096 * 1024


def test_a_product_of_cublas_is_not_counted_again_by_its_operator():
    log = Log()
    row = log.op("aten::_int_mm", 1 << 20, ((64, 4096), "int8"), ((4096, 1024), "int8"), flops=2 * 64 * 4096 * 1024)
    log.gemm(64, 1024, 4096, op=row, dtype=3)
    log.launch(row)
    step, issued = issued_of(log)
    assert [op["work"] for op in issued] == ["gemm", "move"] and issued[0]["dtype"] == "int8"
    assert step.flops(0) == 2 * 64 * 4096 * 1024


def test_operators_without_a_formula_that_multiply_have_flops():
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside.rules import Rule

    library = torch.library.Library("nvcoll_test", "DEF")
    library.define("marlin_gemm(Tensor(a!) c, Tensor a, Tensor b_q_weight, Tensor scales) -> ()")
    rows, packed, result = torch.empty(8, 4096), torch.empty(4096 // 8, 1024, dtype=torch.int32), torch.empty(8, 1024)
    rule = Rule(torch.ops.nvcoll_test.marlin_gemm.default)
    given = (result, rows, packed, torch.empty(32, 1024))
    assert rule.flops_of(given, {}, None) == 2 * 8 * 4096 * 1024
    assert rule.read_of(given, {}, [*given])[0] is rows, "the first tensor of a row says the precision of a product"
    int4 = Rule(torch.ops.aten._weight_int4pack_mm.default)
    assert int4.flops_of((rows, packed, 128, result), {}, result) == 2 * 8 * 4096 * 1024
    assert Rule(torch.ops.aten.mm.default).flops_of((rows, rows.T), {}, rows @ rows.T) == 2 * 8 * 8 * 4096


def test_a_kernel_of_which_only_arguments_are_known_is_a_bound():
    log = Log()
    log.launch(log.op("scan_fwd", 1 << 30, is_bound=True))
    log.launch(log.op("aten::add", 1 << 30))
    step, [bound, known] = issued_of(log)
    assert bound["rate"] == "bound" and "rate" not in known
    found = Machine("hgx-h100x2+ib-ndr-8").predict(step)
    assert any("`scan_fwd`" in reason for reason in found.extrapolated) and found.high_s > 1.9 * found.seconds


def test_kernels_of_extensions_that_are_no_operators_are_named():
    log = Log()
    log.launch(0, count=3)
    log.launch(log.op("aten::add", 1 << 30))
    [note] = made_of([log.recording()], gpu="h100-sxm", name="one").notes
    assert "take no time: `kernel`, 3 launches" in note


def test_other_launches_of_attention_join_what_parts_of_the_keys_gave():
    log = Log()
    shapes = [((4, 32, 128), "bfloat16"), *[((4096, 16, 8, 128), "bfloat16")] * 2]
    row = log.op("_vllm_fa3_C::fwd", 1 << 26, *shapes, pairs=5600, is_causal=False)
    log.launch(row, count=2)
    _, [attended, joined] = issued_of(log)
    assert (attended["work"], attended["bytes"], attended["heads"]) == ("attention", 1 << 26, 32)
    assert attended["queries"] * attended["keys"] == 5600 and not attended["causal"]
    assert (joined["work"], joined["bytes"]) == ("move", 2 * 4 * 32 * 128 * 2)


FLOAT = 4


def pooled(t):
    """Indices of a maximum in each window of two by two pixels."""
    return (2 * t.arange(8)[:, None] * 16 + 2 * t.arange(8)).expand(2, 4, 8, 8).contiguous()


READS = {
    "embedding": (lambda t: (t.empty(50000, 64), t.arange(100)), 100 * (2 * 64 * FLOAT + 8)),
    "index.Tensor": (lambda t: (t.empty(50000, 64), [t.arange(100)]), 100 * (2 * 64 * FLOAT + 8)),
    "index_put_": (lambda t: (t.empty(50000, 64), [t.arange(100)], t.empty(100, 64)), 100 * (3 * 64 * FLOAT + 8)),
    "scatter_add_": (
        lambda t: (t.empty(50000, 64), 0, t.zeros(100, 64, dtype=t.int64), t.empty(100, 64)),
        100 * 64 * (8 + 8 + 8 + FLOAT),
    ),
    "nll_loss_forward": (
        lambda t: (t.empty(100, 50000), t.zeros(100, dtype=t.int64), None, 1, -100),
        100 * (8 + 8) + 2 * FLOAT,
    ),
    "nll_loss_backward": (
        lambda t: (t.ones(()), t.empty(100, 50000), t.zeros(100, dtype=t.int64), None, 1, -100, t.ones(())),
        (100 * 50000 + 2) * FLOAT + 100 * 8,
    ),
    "max_pool2d_with_indices_backward": (
        lambda t: (t.empty(2, 4, 8, 8), t.empty(2, 4, 16, 16), [2, 2], [2, 2], [0, 0], [1, 1], False, pooled(t)),
        2 * 4 * 64 * (FLOAT + 8 + 4 * FLOAT),
    ),
    "add_.Tensor": (lambda t: (t.empty(1000), t.empty(1000)), 3 * 1000 * FLOAT),
    "copy_": (lambda t: (t.empty(1000), t.empty(1000)), 2 * 1000 * FLOAT),
    "zero_": (lambda t: (t.empty(1000),), 1000 * FLOAT),
    "add.Tensor": (lambda t: (t.empty(1000, 1000), t.empty(1000, 1).expand(1000, 1000)), (2 * 10**6 + 1000) * FLOAT),
    "_foreach_add_.List": (lambda t: ([t.empty(1000)] * 1, [t.empty(1000)]), 3 * 1000 * FLOAT),
    "native_batch_norm": (
        lambda t: (t.empty(8, 4, 32, 32), t.ones(4), None, None, None, True, 0.1, 1e-5),
        5 * 8 * 4 * 32 * 32 * FLOAT + 3 * 4 * FLOAT,
    ),
}


@pytest.mark.parametrize("name", READS)
def test_an_operator_moves_the_elements_that_its_kernels_read_and_write(name):
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside.rules import Rule
    from nvcoll.dryrun.inside.tensors import tensors_of

    make, expected = READS[name]
    packet, _, overload = name.partition(".")
    op, args = getattr(getattr(torch.ops.aten, packet), overload or "default"), make(torch)
    tensors = tensors_of(args, op(*args))
    assert Rule(op).bytes_of(args, {}, tensors_of(args), tensors) == expected


def test_a_lookup_of_a_library_reads_the_rows_of_its_table():
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside.rules import Rule
    from nvcoll.dryrun.inside.tensors import tensors_of

    library = torch.library.Library("nvcoll_tests", "FRAGMENT")
    library.define("rotary_embedding(Tensor positions, Tensor(a!) query, Tensor cache) -> ()")
    positions, query, cache = torch.zeros(10, dtype=torch.int64), torch.empty(10, 64), torch.empty(8192, 64)
    rule = Rule(torch.ops.nvcoll_tests.rotary_embedding.default)
    tensors = tensors_of((positions, query, cache))
    assert rule.bytes_of((positions, query, cache), {}, tensors, tensors) == 10 * (8 + 2 * 64 * FLOAT)


def test_a_pointwise_kernel_reads_an_element_of_each_tensor_for_each_that_it_writes():
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside.compiled import bytes_read

    table, rows, result = torch.empty(8192, 64), torch.empty(10, 64), torch.empty(10, 64)
    assert bytes_read("triton_poi_fused_index_select_0", [table, rows], [result]) == {id(table): 10 * 64 * FLOAT}
    assert bytes_read("triton_red_fused_mean_0", [table], [result]) == {}


def test_a_kernel_with_an_embedding_reads_a_row_for_each_integer():
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside.compiled import bytes_read

    tokens, table, rows, weights = torch.arange(10), torch.empty(8192, 64), torch.empty(10, 64), torch.empty(64)
    fused = "triton_red_fused__to_copy_embedding_rms_norm_0"
    assert bytes_read(fused, [tokens, table, weights, rows], [rows]) == {id(table): 10 * 64 * FLOAT}
    assert bytes_read(fused, [table, weights, rows], [rows]) == {}, "without integers nothing is known"
    assert bytes_read("triton_red_fused_embedding_dense_backward_0", [tokens, rows, table], [table]) == {}


@pytest.mark.parametrize("as_products", [False, True], ids=["a kernel of cuDNN", "products of cuBLAS"])
def test_a_convolution_counts_once_however_it_runs(as_products):
    images, pixels, channels, filters = 32, 56 * 56, 64, 128
    flops = 2 * images * pixels * channels * filters
    log = Log()
    inputs = ((images, channels, 56, 56), "float16"), ((filters, channels, 1, 1), "float16")
    convolution = log.op("aten::convolution", 1000, *inputs, flops=flops)
    if as_products:
        log.gemm(pixels, filters, channels, op=convolution, batch=images)
    log.launch(convolution)
    made = made_of([log.recording()], gpu="h100-sxm", name="one")
    assert made.step.flops(0) == flops and made.step.flops() == made.step.model_flops == 16 * flops


@pytest.mark.parametrize(("tokens", "least", "most"), [(1, 8, 8), (4, 23, 29.1), (4096, 124, 128)])
def test_routed_experts_read_the_weights_that_a_batch_reaches(tokens, least, most):
    shapes = ((tokens, 2048), "bfloat16"), ((128, 1536, 2048), "float8_e4m3fn"), ((tokens, 8, 1536), "bfloat16")
    row = grouped(Op("fused_moe_kernel", inputs=shapes))
    reached = row["batch"]
    assert least <= reached <= most and row["dtype"] == "bf16" and row["experts"]
    assert row["m"] * row["batch"] * row["n"] * row["k"] == pytest.approx(tokens * 8 * 1536 * 2048)
    moved = reached * 1536 * 2048 + 2 * tokens * (2048 + 8 * 1536)
    assert row["nbytes"] == pytest.approx(moved, rel=1e-2)


def test_routed_experts_of_sglang_are_those_of_vllm():
    (*shapes, made), chosen = ((4, 2048), (128, 1536, 2048), (4, 8, 1536)), (4, 8)
    of_vllm, of_sglang = (
        grouped(Op("fused_moe_kernel", inputs=tuple((shape, "bfloat16") for shape in (*shapes, *rest))))
        for rest in ((made, chosen), ((128, 1536), chosen))
    )
    assert of_sglang == of_vllm


@pytest.mark.parametrize("holders", [1, 2, 8])
def test_a_rank_multiplies_its_part_of_the_experts(holders):
    held = 128 // holders
    shapes = ((4096, 2048), "bfloat16"), ((held, 1536, 2048), "bfloat16"), ((4096, 8, 1536), "bfloat16")
    row = grouped(Op("fused_moe_kernel", inputs=shapes), holders)
    assert 0.97 * held < row["batch"] <= held
    assert row["m"] * row["batch"] * row["n"] * row["k"] == pytest.approx(4096 * 8 * 1536 * 2048 / holders)


def test_experts_of_four_bits_have_a_scale_for_each_32():
    shapes = ((1, 1, 2880), "bfloat16"), ((32, 5760, 2880), "mxfp4"), ((1, 4, 2880), "bfloat16")
    row = grouped(Op("_matmul_ogs", inputs=shapes))
    assert row["nbytes"] == pytest.approx(4 * 5760 * 2880 * (4 + 8 / 32) / 8 + 2 * (2880 + 4 * 2880))
    assert row["m"] * row["batch"] * row["n"] * row["k"] == pytest.approx(4 * 5760 * 2880)
