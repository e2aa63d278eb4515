"""Products that an operator computes in kernels of its own are found by its shapes: experts, convolutions."""

import json

import pytest
from dryrun_recordings import Log

from nvcoll.dryrun.parent.products import grouped, is_depthwise
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.wire.rank_recording import Op

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
    assert works == [("move", 1 << 28), ("move", 1 << 29)]
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
