"""What a call takes as arrays, and what it refuses, with which words."""

import array

import ml_dtypes
import numpy as np
import pytest

import nvcoll


@pytest.fixture
def node():
    return nvcoll.Node(2)


def pair(dtype="f4", count=6):
    return [np.ones(count, dtype=dtype) for _ in range(2)]


def test_anything_with_the_buffer_protocol_is_an_array(node):
    arrays = [array.array("f", [1, 2, 3]) for _ in range(2)]
    node.all_reduce(arrays)
    assert list(arrays[0]) == [2, 4, 6]


def test_bfloat16_of_ml_dtypes_is_an_array(node):
    arrays = pair(ml_dtypes.bfloat16)
    node.all_reduce(arrays)
    assert (arrays[1] == 2).all()


def test_torch_tensors_are_arrays_bfloat16_too(node):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float32, torch.float64, torch.int32, torch.bfloat16):
        tensors = [torch.ones(5, dtype=dtype) for _ in range(2)]
        node.all_reduce(tensors)
        assert (tensors[0] == 2).all() and (tensors[1] == 2).all()
    negated = [torch.complex(torch.ones(3), torch.ones(3)).conj().imag for _ in range(2)]
    with pytest.raises(nvcoll.InvalidArgument, match="resolve_neg"):
        node.all_reduce(negated)
    with pytest.raises(nvcoll.InvalidArgument, match="requires grad"):
        node.all_reduce([torch.ones(5, requires_grad=True) for _ in range(2)])


def test_strided_arrays_are_written_back(node):
    memory = [np.ones((4, 6), dtype="f4") for _ in range(2)]
    node.all_reduce([m[::2, ::3] for m in memory])
    for m in memory:
        assert (m[::2, ::3] == 2).all() and m.sum() == 24 + 4


def test_a_strided_vector_of_ranks_and_a_stack_of_matrices(node):
    stack = np.ones((2, 3, 4), dtype="f8")
    node.all_reduce(stack)
    assert (stack == 2).all()
    every_other = np.ones((4, 5), dtype="f4")[::2]
    node.all_reduce(every_other)
    assert (every_other == 2).all()
    scalars = np.array([1, 2], dtype="i4")
    node.all_reduce(scalars)
    assert (scalars == 3).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (lambda: pair()[:1], r"`arrays` has 1 arrays, the node has 2 ranks"),
        (lambda: [np.ones(6, "f4"), np.ones(6, "f8")], r"rank 1 is float64, rank 0 has float32"),
        (lambda: [np.ones(6, "f4"), np.ones(5, "f4")], r"holds 5 elements on rank 1, all_reduce needs 6"),
        (lambda: pair("c8"), r"has dtype complex64: convert it"),
        (lambda: [x.astype(">f4") for x in pair()], r"has dtype >f4"),
        (lambda: [np.ones(6, "f4")] * 2, r"rank 0 and `arrays` of rank 1 overlap"),
        (lambda: [np.broadcast_to(np.float32(1), 6)] * 2, r"read-only"),
        (lambda: [1.0, 2.0], r"`arrays` of rank 0 is a float: pass a numpy array"),
        (lambda: np.float32(1), r"pass a list of arrays|scalar|is a float32"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(node, arrays, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        node.all_reduce(arrays())


def test_outputs_may_not_overlap_inputs_of_other_ranks(node):
    memory = np.ones((3, 6), dtype="f4")
    with pytest.raises(nvcoll.InvalidArgument, match="overlap"):
        node.all_reduce([memory[0], memory[1]], out=[memory[1], memory[2]])


def test_read_only_inputs_are_fine_out_of_place(node):
    arrays, out = pair(), pair()
    for x in arrays:
        x.flags.writeable = False
    node.all_reduce(arrays, out=out)
    assert (out[0] == 2).all()


def test_wrong_ops_algorithms_and_paths_are_refused_with_the_choices(node):
    with pytest.raises(nvcoll.InvalidArgument, match="avg is not defined on int32"):
        node.all_reduce(pair("i4"), "avg")
    with pytest.raises(nvcoll.InvalidArgument, match="choose from nvswitch"):
        node.all_reduce(pair(), algorithm="rings")
    with pytest.raises(nvcoll.InvalidArgument, match="mapped, staged"):
        node.all_reduce(pair(), path="nvlink")
    with pytest.raises(nvcoll.InvalidArgument, match=r"scales int32 by 0\.5"):
        node.all_reduce(pair("i4"), nvcoll.premul_sum(0.5))
    with pytest.raises(ValueError, match="without scalars"):
        node.all_reduce(pair(), "premul_sum")
    with pytest.raises(nvcoll.InvalidArgument, match="world_size is 0"):
        nvcoll.Node(0)
