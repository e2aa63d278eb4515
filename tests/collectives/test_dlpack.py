"""Tensors on loan: every producer's tensor is taken over once, given back once, and believed in what it says."""

import ctypes

import numpy as np
import pytest
from drawn import dtype_named

import nvcoll
from nvcoll._nvcoll import dtypes

READ_ONLY, IS_COPIED = 1, 2
UNVERSIONED, VERSIONED = b"dltensor", b"dltensor_versioned"
USED = {UNVERSIONED: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetName.restype = ctypes.c_char_p
python.PyCapsule_GetName.argtypes = [ctypes.py_object]
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Unversioned(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Lender:
    """Lends a array, as float32 unless fields say otherwise, and counts what it lends and gets back.

    Args:
        array: what is lent.
        form: the name of the capsules.
        flags, major: fields of a versioned tensor.
        device: what ``__dlpack_device__`` says.
        deleter: whether there is one.
        fields: fields of the tensor that say something else.
    """

    def __init__(self, array, form=VERSIONED, *, flags=0, major=1, device=1, deleter=True, **fields):
        self.array, self.device, self.form = array, device, form
        self.asked, self.given_back, self.capsules = [], 0, []
        axes = ctypes.c_int64 * array.ndim
        self.shape, self.strides = axes(*array.shape), axes(*(s // array.itemsize for s in array.strides))
        described = {
            "data": array.__array_interface__["data"][0],
            "device_type": 1,
            "dimensions": array.ndim,
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "shape": ctypes.addressof(self.shape),
            "strides": ctypes.addressof(self.strides),
        }
        self.give_back = Deleter(self.count_return) if deleter else Deleter()
        tensor = Tensor(**described | fields)
        if form == UNVERSIONED:
            self.managed = Unversioned(tensor=tensor, deleter=self.give_back)
        else:
            self.managed = Versioned(major=major, flags=flags, deleter=self.give_back, tensor=tensor)

    def count_return(self, address):
        assert address == ctypes.addressof(self.managed)
        self.given_back += 1

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, *, max_version=None):
        self.asked.append(max_version)
        self.capsules.append(python.PyCapsule_New(ctypes.addressof(self.managed), self.form, None))
        return self.capsules[-1]

    @property
    def taken(self):
        return [python.PyCapsule_GetName(capsule) for capsule in self.capsules].count(USED.get(self.form))


class OldLender(Lender):
    """A producer from before versions."""

    def __dlpack__(self, stream=None):
        return super().__dlpack__()


@pytest.fixture
def node():
    return nvcoll.Node(2)


def ones(*shape):
    return np.ones(shape, "f4")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lender(ones(6)),
        lambda: Lender(ones(6), UNVERSIONED),
        lambda: OldLender(ones(6), UNVERSIONED),
        lambda: Lender(ones(6), strides=None),
        lambda: Lender(ones(2, 3), strides=None),
        lambda: Lender(ones(4, 6)[::2, 4:1:-1]),
        lambda: Lender(ones(3, 2).T),
        lambda: Lender(ones(6), deleter=False),
    ],
)
def test_a_tensor_is_taken_over_once_and_given_back_once(node, make):
    lenders = [make(), make()]
    for calls in (1, 2, 3):
        node.all_reduce(lenders)
        for lender in lenders:
            returns = calls if lender.give_back else 0
            assert (lender.taken, lender.given_back) == (calls, returns)
            assert (lender.array == 2**calls).all()


# `DLDataTypeCode` of dlpack.h, by the name of a dtype without its bits.
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}


@pytest.mark.parametrize("name", [row.name for row in dtypes()])
def test_a_tensor_of_every_dtype_is_read_by_its_code(node, name):
    code = CODES[name] if name in CODES else CODES[name.rstrip("0123456789")]
    arrays = [np.ones(6, dtype_named(name)) for _ in range(2)]
    lenders = [Lender(x, code=code, bits=8 * x.itemsize) for x in arrays]
    node.all_reduce([lenders[0], arrays[1]])
    node.all_reduce([lenders[1], arrays[0]])
    assert (arrays[0] == np.array(4).astype(arrays[0].dtype)).all()


def test_a_byte_offset_is_added_to_the_address(node):
    memory = ones(8)
    node.all_reduce([Lender(memory[:3], byte_offset=20), ones(3)])
    assert memory.tolist() == [1, 1, 1, 1, 1, 2, 2, 2]


def test_a_scalar_tensor_is_one_element(node):
    lenders = [Lender(np.ones((), "f4"), shape=None, strides=None) for _ in range(2)]
    node.all_reduce(lenders)
    assert [float(lender.array) for lender in lenders] == [2, 2]


def test_a_stack_is_borrowed_once_for_all_its_rows(node):
    stack = Lender(ones(4, 3)[::2])
    node.all_reduce(stack)
    assert (stack.array == 2).all() and (stack.taken, stack.given_back) == (1, 1)


def test_the_newest_form_is_asked_for_first(node):
    lenders = [Lender(ones(6)), OldLender(ones(6), UNVERSIONED)]
    node.all_reduce(lenders)
    assert [lender.asked for lender in lenders] == [[(1, 0)], [None]]


def test_an_exchange_table_that_we_cannot_read_is_passed_over(node):
    table = (ctypes.c_uint32 * 16)(2)
    for answer in (object(), python.PyCapsule_New(ctypes.addressof(table), b"dlpack_exchange_api", None)):
        kind = type("Modern", (Lender,), {"__dlpack_c_exchange_api__": answer})
        lenders = [kind(ones(6)), kind(ones(6))]
        node.all_reduce(lenders)
        assert (lenders[0].array == 2).all() and lenders[0].asked == [(1, 0)]


def test_a_plan_keeps_the_loan_until_it_goes(node):
    lenders = [Lender(ones(6)), Lender(ones(6), UNVERSIONED)]
    plan = node.plan("all_reduce", lenders)
    for _ in range(3):
        plan.run()
    assert [lender.given_back for lender in lenders] == [0, 0] and (lenders[0].array == 8).all()
    del plan
    assert [(lender.taken, lender.given_back) for lender in lenders] == [(1, 1)] * 2


def test_flags_forbid_writing_and_not_reading(node):
    for flags, message in [
        (READ_ONLY, "rank 0 is read-only and would be written"),
        (IS_COPIED, "rank 0 is lent as a copy, and nobody would see what is written"),
    ]:
        lenders = [Lender(ones(6), flags=flags) for _ in range(2)]
        with pytest.raises(nvcoll.InvalidArgument, match=message):
            node.all_reduce(lenders)
        out = [ones(6), ones(6)]
        node.all_reduce(lenders, out=out)
        assert (out[1] == 2).all() and (lenders[0].array == 1).all()
        assert [(lender.taken, lender.given_back) for lender in lenders] == [(2, 2)] * 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device_type": 2}, r"rank 1 is on cuda:0, calls run in CPU memory: pass a copy on the CPU"),
        ({"code": 2, "bits": 128}, r"rank 1 has dtype float128: convert it to one of float32"),
        ({"code": 14, "bits": 8}, r"rank 1 has dtype float8_e8m0fnu: convert it"),
        ({"code": 12, "bits": 16}, r"rank 1 has dtype float8_e5m2: convert it"),
        ({"code": 99}, r"rank 1 has dtype \(DLPack code 99, lanes 1\)"),
        ({"bits": 16, "lanes": 2}, r"rank 1 has dtype \(DLPack code 2, lanes 2\)"),
        ({"code": 0, "bits": 4}, r"rank 1 has dtype int4: convert it"),
        ({"data": None}, r"rank 1 has elements and no memory"),
        ({"major": 2}, r"rank 1 speaks DLPack 2, and 1 is known here"),
        ({"shape": None}, r"rank 1 is a DLPack tensor that has axes and no shape"),
        ({"dimensions": -1}, r"rank 1 has a shape and strides that reach past the end of memory"),
    ],
)
def test_a_tensor_that_cannot_be_used_is_given_back_and_refused_with_the_reason(node, fields, message):
    lenders = [Lender(ones(6)), Lender(ones(6), **fields)]
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        node.all_reduce(lenders)
    assert [(lender.taken, lender.given_back) for lender in lenders] == [(1, 1)] * 2


def test_shapes_and_strides_that_outgrow_addresses_are_refused(node):
    for shape, strides in [((2**62, 2**62), (1, 1)), ((3,), (2**62,)), ((-1,), (1,)), ((3, 3), (2**60, 2**60))]:
        lender = Lender(ones(*[1] * len(shape)))
        lender.shape[:], lender.strides[:] = shape, strides
        with pytest.raises(nvcoll.InvalidArgument, match="reach past the end of memory"):
            node.all_reduce([ones(6), lender])
        assert lender.given_back == 1


def test_a_loan_ends_also_when_the_call_fails(node):
    lenders = [Lender(ones(6)), Lender(ones(5), UNVERSIONED)]
    with pytest.raises(nvcoll.InvalidArgument, match="holds 5 elements"):
        node.all_reduce(lenders)
    with pytest.raises(nvcoll.InvalidArgument, match="rings"):
        node.all_reduce([Lender(ones(5)), lenders[1]], algorithm="rings")
    assert [(lender.taken, lender.given_back) for lender in lenders] == [(1, 1), (2, 2)]

    lenders = [Lender(ones(2000, 2000).T) for _ in range(2)]
    with pytest.raises(nvcoll.Timeout):
        node.all_reduce(lenders, timeout=1e-9)
    assert [lender.given_back for lender in lenders] == [1, 1]


def test_another_device_is_refused_before_a_capsule_is_made(node):
    for device, name in [(2, "cuda:0"), (10, "rocm:0"), (77, "a device of DLPack type 77")]:
        lender = Lender(ones(6), device=device)
        with pytest.raises(nvcoll.InvalidArgument, match=f"`arrays` of rank 1 is on {name}"):
            node.all_reduce([ones(6), lender])
        assert lender.asked == [] and lender.given_back == 0


def test_a_capsule_that_somebody_took_over_is_not_taken_again(node):
    for form in (*USED.values(), b"something else"):
        lender = Lender(ones(6), form)
        with pytest.raises(nvcoll.InvalidArgument, match="lends a DLPack capsule without a tensor"):
            node.all_reduce([ones(6), lender])
        assert lender.given_back == 0


def test_arrays_of_libraries_that_never_change_them_are_read_and_not_written(node):
    lent = type("Array", (Lender,), {"__module__": "jaxlib._jax"})
    x = [lent(np.ones(3, "f4"), UNVERSIONED), lent(np.ones(3, "f4"), UNVERSIONED)]
    with pytest.raises(nvcoll.InvalidArgument, match=r"of rank 0 is an array of JAX, .*np\.array"):
        node.all_reduce(x)
    gathered = node.all_gather(x)
    assert all(len(each) > 0 for each in gathered)
