"""Products of experts that one kernel computes are found by the shapes of its operator."""

import pytest

from nvcoll.dryrun.products import flops_of, grouped
from nvcoll.dryrun.recording import Op

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
    assert flops_of(row) == 2 * ROWS * WIDTH * HIDDEN
    assert (row["batch"], row["dtype"], row["grouped"]) == (EXPERTS, "bf16", True)
    assert min(row["m"], row["n"], row["k"]) == ROWS / EXPERTS


def test_other_operators_are_no_products_of_experts():
    assert grouped(Op("aten::mm", inputs=(((8, 8), "bfloat16"), ((8, 8), "bfloat16")))) is None
