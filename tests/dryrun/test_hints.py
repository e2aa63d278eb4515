"""Hints of dry runs: each rule at its threshold."""

import types

import pytest

from nvcoll.dryrun.parent.hints import hints


def recorded(allocated=95, reserved=100, **facts):
    none = {"growth": {}, "ddp_waits": False, "without_gradients": {}, "saves": []}
    return none | {"ranks": [{"allocated": allocated, "reserved": reserved}]} | facts


def predicted(*collectives, small=0, memory_gib=71, **parts):
    made = [types.SimpleNamespace(group=group, ranks=ranks, bytes=1 << 30) for group, ranks in collectives]
    if small:
        made.append(
            types.SimpleNamespace(
                of="all ranks", name="dp all_reduce", group="dp", ranks="8 nodes", count=small, bytes=4096
            )
        )
    memory = {"memory_gib": memory_gib, "gpu_memory_gib": 79}
    return types.SimpleNamespace(seconds=1.0, parts=parts, collectives=made, **memory)


def test_a_good_step_has_no_hint():
    assert hints(recorded(), predicted(gemm=0.8, host=0.09, sharded=0.09, data=0.02)) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"host": 0.2}, "20 % of the step waits for the processor"),
        ({"sharded": 0.2}, "sharded parameters, exposed: 20 % of the step"),
        ({"data": 0.2}, "bucket_cap_mb"),
        ({"tensor": 0.2}, "fewer tensor-parallel ranks"),
    ],
)
def test_what_waits_has_a_hint(parts, said):
    (hint,) = hints(recorded(), predicted(**parts))
    assert said in hint


def test_memory_that_grows_has_a_hint_with_the_line_that_keeps_it():
    (hint,) = hints(recorded(growth={"bytes": 1 << 30, "step": 3, "line": "t.py:9 main"}), predicted())
    assert hint == (
        "memory grew by 1 GiB from step 2 to 3, most of it made at t.py:9 main: the script keeps tensors of its steps"
    )
    assert hints(recorded(growth={}), predicted()) == []


@pytest.mark.parametrize(("memory_gib", "share"), [(78.9, 100), (71.2, 90), (71.1, None), (79.1, None)])
def test_memory_that_is_nearly_full_has_a_hint_and_memory_that_is_too_small_has_none(memory_gib, share):
    said = [f"uses {share} % of the memory: another version of torch, NCCL or fragmentation can exceed it"]
    assert hints(recorded(), predicted(memory_gib=memory_gib)) == (said if share else [])


@pytest.mark.parametrize(
    ("part", "group", "advice"), [("tensor", "tp 2", "within NVLink"), ("sharded", "shard", "within a node")]
)
def test_a_group_that_leaves_the_node_alone_is_told_to_stay_in_it(part, group, advice):
    inside, outside = (group, "8 GPUs of one node"), (group, "4 GPUs each of 2 nodes")
    scattered = (group, "one GPU each of 8 nodes")  # sharding that other groups leave one GPU of a node
    cases = ((outside, inside), True), ((inside, ("dp", "8 nodes")), False), ((scattered,), part == "tensor")
    for made, is_said in cases:
        (hint,) = hints(recorded(), predicted(*made, **{part: 0.2}))
        assert (advice in hint) == is_said


def test_ddp_on_a_backend_that_waits_is_told_of_the_other_one():
    (hint,) = hints(recorded(ddp_waits=True), predicted(data=0.2))
    assert "TORCH_DIST_USE_NCCL2=0" in hint and "bucket_cap_mb" not in hint


def test_the_largest_share_comes_first():
    found = hints(recorded(allocated=50), predicted(host=0.2, sharded=0.5))
    assert [hint.split(" ")[0] for hint in found] == ["sharded", "20", "50"] and "expandable_segments" in found[2]


def test_many_small_collectives_have_a_hint():
    (hint,) = hints(recorded(), predicted(small=50))
    assert hint.startswith("50 calls of all_reduce among dp have 4 KiB each")
    assert hints(recorded(), predicted(small=49)) == []


def test_work_that_is_no_training_is_told_with_its_lines():
    (hint,) = hints(
        recorded(without_gradients={"t.py:8 f": 0.14, "rope.py:2 f": 0.009}, saves=["t.py:9 g"]), predicted()
    )
    assert "holds 14 % of FLOPs without gradients (t.py:8 f), torch.save (t.py:9 g);" in hint
    assert "--steps N counts another step" in hint and "rope" not in hint
