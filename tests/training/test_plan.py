"""Steps of training: planned, priced, swept; their rules and their JSON."""

import json
import math

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import nvcoll
from nvcoll import InvalidArgument
from nvcoll.training import Machine, WorkStep, models, neighbours, plan, software, sweep
from nvcoll.training.options import SCHEDULES
from nvcoll.training.prediction import PARTS

ON = "hgx-h100x8+ib-ndr-8"

TINY = {
    "name": "tiny",
    "layers": 8,
    "hidden": 1024,
    "heads": 8,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 4096,
    "gated": False,
    "vocab": 32000,
    "tied": False,
    "sequence": 2048,
}


@pytest.fixture(scope="module")
def machine():
    return Machine(ON)


@pytest.mark.parametrize(("framework", "columns"), [("megatron-core", 50304), ("fsdp2", 50257)])
def test_frameworks_that_pad_a_vocabulary_have_a_faster_head(machine, framework, columns):
    step = machine.plan("gpt2-xl", software=framework, global_batch=64).step
    assert json.loads(step.to_json())["layers"]["blocks"]["head"]["forward"][0]["n"] == columns


def test_the_parts_of_a_step_are_its_time(machine):
    found = machine.plan("llama3-70b", tp=8, pp=4, micro_batch=1, global_batch=128)
    assert math.isclose(sum(found.parts.values()), found.seconds)
    assert set(found.parts) <= set(PARTS)
    assert found.low_s < found.seconds < found.high_s
    tokens = 128 * models()["llama3-70b"]["sequence"]
    assert math.isclose(found.tokens_per_second, tokens / found.seconds / 64)


def test_mfu_is_the_flops_of_the_model_over_the_peak(machine):
    found = machine.plan("llama3-8b", global_batch=64)
    row = models()["llama3-8b"]
    matrices = (
        row["hidden"] * row["head_dim"] * (2 * row["heads"] + 2 * row["kv_heads"]) + 3 * row["hidden"] * row["ffn"]
    )
    scores = 6 * row["sequence"] / 2 * row["heads"] * 2 * row["head_dim"]
    flops = row["layers"] * (6 * matrices + scores) + 6 * row["hidden"] * row["vocab"]
    assert math.isclose(found.tflops * 1e12, flops * found.tokens_per_second, rel_tol=1e-9)
    assert math.isclose(found.mfu, found.tflops * 1e12 / 989.4e12, rel_tol=1e-3)


def test_the_roles_of_a_pipeline_are_its_stages_once(machine):
    found = machine.plan("llama3-70b", tp=8, pp=8, vp=5, global_batch=128)
    assert sorted(stage for role in found.roles for stage in role.stages) == list(range(8))
    assert all(len(role.forward_s) == 5 for role in found.roles)


def test_a_step_is_read_from_the_json_that_it_writes(machine):
    found = machine.plan("deepseek-v3", pp=8, ep=8, global_batch=256)
    again = WorkStep.from_json(found.step.to_json())
    assert again.to_json() == found.step.to_json()
    assert machine.predict(again).seconds == found.seconds


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "nvcoll.step/9"},
        {"layers": []},
        {"groups": {}},
        {"streams": {}},
        {"gpus": "many"},
        {"unknown": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_json_that_contradicts_itself_is_no_step(machine, change):
    text = json.loads(machine.plan("llama3-70b", tp=8, global_batch=64).step.to_json()) | change
    with pytest.raises(InvalidArgument, match="this is no step"):
        WorkStep.from_json(json.dumps(text))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_other_json_is_no_step_and_no_request(value):
    for read in (WorkStep.from_json, lambda text: WorkStep.plan(text, gpus=8, domain=8)):
        with pytest.raises(InvalidArgument):
            read(json.dumps(value))


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({"tp": 3}, "TP 3 x PP 1 x CP 1 = 3 does not divide 64 GPUs"),
        ({"tp": 8, "dp": 4}, "= 32 ranks, but there are 64 GPUs"),
        ({"pp": 32, "global_batch": 63}, "must be a multiple of micro-batch x DP"),
        ({"ep": 2}, "EP 2 needs experts, and llama3-70b is dense"),
        ({"pp": 4, "vp": 2, "global_batch": 34 * 16}, "micro-batches \\(34\\) in multiples of the stages \\(4\\)"),
        ({"pp": 4, "vp": 2, "schedule": "1f1b"}, "2 chunks need the interleaved schedule"),
        ({"cp": 64, "sequence": 8100}, "must be a multiple of 2 x CP"),
        ({"zero": 7}, "there is no ZeRO 7"),
        ({"dtype": "fp7"}, "unknown variant `fp7`, expected one of `bf16`"),
        ({"software": "megatorn"}, "no software is called `megatorn`"),
        ({"recompute": {"gemm": 2.0}}, "from 0 to 1"),
        ({"shard_ranks": 48}, "must divide"),
    ],
)
def test_an_impossible_layout_is_refused_with_the_rule_it_breaks(machine, how, rule):
    with pytest.raises(InvalidArgument, match=rule):
        machine.plan("llama3-70b", **{"global_batch": 1024, **how})


def test_a_model_is_checked():
    for change, reason in (
        ({"kv_heads": 3}, "cannot share"),
        ({"layers": 0}, "0 layers"),
        ({"hidden": 0}, "`hidden` is 0"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            plan(TINY | change, on="hgx-h100", global_batch=8)
    with pytest.raises(InvalidArgument, match="no model is called `lama`"):
        plan("lama", on="hgx-h100", global_batch=8)


def test_small_and_capital_letters_of_a_model_are_the_same():
    assert plan("Llama3-8B", on="hgx-h100").step.name == plan("llama3-8b", on="hgx-h100").step.name


def test_a_model_of_ten_lines_of_toml(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in TINY.items() if key != "name"))
    assert plan(str(file), on="hgx-h100", global_batch=8).step.name.startswith("mine on 8 GPUs")


def test_a_gpu_without_peaks_is_refused_with_its_name():
    with pytest.raises(InvalidArgument, match="the peaks of"):
        plan(TINY, on=nvcoll.Fabric.from_text("\tGPU0\nGPU0\t X\n", gpu="k80"), global_batch=8)


def test_a_machine_with_too_few_gpus_is_refused():
    with pytest.raises(InvalidArgument, match="it takes 16 GPUs"):
        Machine("hgx-h100", 16)


@settings(deadline=None, max_examples=examples(60))
@given(
    model=st.sampled_from(sorted(models())),
    framework=st.sampled_from(sorted(software())),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 8]),
    zero=st.integers(0, 3),
    schedule=st.sampled_from([None, *SCHEDULES]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    dtype=st.sampled_from(["bf16", "fp16", "fp8"]),
)
def test_whatever_is_possible_has_a_price_that_adds_up(machine, model, framework, **how):
    try:
        found = machine.plan(model, software=framework, global_batch=128, **how)
    except InvalidArgument as error:
        assert "this layout is impossible" in str(error) or "does not divide" in str(error) or "layers" in str(error)
        return
    assert 0 < found.low_s < found.seconds < found.high_s < 1e6
    assert math.isclose(sum(found.parts.values()), found.seconds)
    assert 0 < found.mfu < 1
    assert all(1 < one.least_bytes / 2**30 < one.gib for one in found.memory) and found.memory_gib > 1
    closed = machine.pricer.seconds(found.step, {})
    assert 0.8 < closed / found.seconds < 1.25, "the closed form of the pipeline is near its virtual time"


def test_more_of_anything_does_not_make_a_step_slower():
    narrow, wide = Machine("hgx-h100x8+ib-ndr-4"), Machine(ON)
    how = {"tp": 8, "pp": 4, "global_batch": 64}
    assert wide.plan("llama3-70b", **how).seconds <= narrow.plan("llama3-70b", **how).seconds
    faster = Machine(nvcoll.fabric(ON).what_if("nvlink x2")).plan("llama3-70b", **how)
    assert faster.seconds < wide.plan("llama3-70b", **how).seconds
    assert wide.plan("llama3-70b", **how | {"recompute": "full"}).seconds > wide.plan("llama3-70b", **how).seconds


def test_recomputation_saves_memory_and_sharding_too(machine):
    memory = [
        machine.plan("llama3-8b", global_batch=64, recompute=recompute, zero=zero).memory_gib
        for recompute, zero in (("none", 0), ("none", 1), ("full", 1), ("full", 3))
    ]
    assert memory == sorted(memory, reverse=True) and memory[0] > 1.5 * memory[-1]


def test_a_sweep_is_best_first_and_keeps_what_is_given(machine):
    told = []
    found = sweep("llama3-70b", machine, global_batch=128, tp=8, tell=lambda *numbers: told.append(numbers))
    assert told[-1] == (len(found.candidates) + sum(found.refused.values()),) * 2
    assert {one.layout["tp"] for one in found.candidates} == {8}
    fitting = [one.seconds for one in found.candidates if one.fit == "fits"]
    assert fitting == sorted(fitting) and found.best.seconds == fitting[0]
    front = found.pareto
    assert front[0].seconds == min(one.seconds for one in found.candidates if one.fit != "too_large")
    assert [one.memory_gib for one in front] == sorted((one.memory_gib for one in front), reverse=True)


def test_the_price_in_a_sweep_is_that_of_the_plan(machine):
    best = sweep("llama3-70b", machine, global_batch=128, micro_batch=1, recompute="none").best
    found = machine.plan("llama3-70b", **best.layout)
    assert found.words == best.words and found.memory_gib == best.memory_gib
    assert 0.97 < best.seconds / found.seconds < 1.03


def test_neighbours_are_faster_or_fit_where_the_layout_does_not(machine):
    found = machine.plan("llama3-70b", tp=8, pp=8, global_batch=128)
    assert all(one.seconds < found.seconds and one.fit != "too_large" for one in neighbours(machine, found))
    large = machine.plan("llama3-70b", tp=2, pp=1, micro_batch=1, global_batch=128)
    assert large.fit == "too_large" and all(one.fit != "too_large" for one in neighbours(machine, large))


def test_a_measured_step_scales_others_less_than_all_the_way(machine):
    found = machine.plan("llama3-8b", global_batch=64)
    calibration = found.calibrated(1.2 * found.seconds)
    assert math.isclose(calibration.ratio, 1.2) and 1 < calibration.scale < 1.2
    scaled = found.scaled(calibration.scale)
    assert math.isclose(scaled.seconds, calibration.scale * found.seconds)
    assert math.isclose(sum(scaled.parts.values()), scaled.seconds)
    for wrong in (0, -1, math.nan, math.inf):
        with pytest.raises(InvalidArgument, match="positive"):
            found.calibrated(wrong)


def test_every_model_and_software_can_be_planned(machine):
    for name in models():
        one = models()[name]
        divided = [one["heads"], one["ffn"], one.get("recurrent", {}).get("key_heads", 8)]
        tp = next(size for size in (8, 4, 2, 1) if all(number % size == 0 for number in divided))
        assert machine.plan(name, tp=tp, global_batch=64).seconds > 0
    for name in software():
        assert machine.plan(TINY, software=name, global_batch=64).seconds > 0


def test_a_layout_says_its_words(machine):
    found = machine.plan("llama3-8b", global_batch=64, tp=8, pp=2, recompute="full")
    assert found.words == "TP 8  PP 2  DP 4  ZeRO 1  micro-batch 1  recompute full"
    assert (found.layout["recompute"], found.layout["dp"], found.layout["shard_ranks"]) == ("full", 4, None)
    again = machine.plan("llama3-8b", **found.layout)
    assert again == found and again.words in repr(again)


def test_names_of_options_that_do_not_exist_are_refused_with_those_that_do(machine):
    with pytest.raises(InvalidArgument, match="no recomputation is called `some`: choose from none, selective, full"):
        machine.plan("llama3-8b", recompute="some")
    with pytest.raises(InvalidArgument, match="invalid type: string"):
        machine.plan("llama3-8b", tp="8")


def test_only_a_planned_step_has_neighbours(machine):
    step = machine.plan("llama3-8b", global_batch=64).step
    with pytest.raises(InvalidArgument, match="only a planned step has layouts next to it"):
        neighbours(machine, machine.predict(step))


def test_words_of_fine_tuning_are_options_and_come_back(machine):
    words = {
        "lora": 16,
        "lora_targets": "attention",
        "dora": True,
        "quantize": "nf4-dq",
        "optimizer": "adamw-8bit",
        "pure_bf16": True,
        "offload": "activations",
        "loss_chunks": 8,
        "document": 1024,
    }
    found = machine.plan("llama3.1-8b", global_batch=64, **words)
    assert found.layout.items() >= words.items()
    assert machine.plan("llama3.1-8b", **found.layout).seconds == found.seconds
    whole = machine.plan("llama3.1-8b", global_batch=64)
    assert found.memory_gib < whole.memory_gib
    assert not set(whole.layout) & set(words)
