"""docs/train/plan.md and docs/reference/training-step.md: what they show and claim is so."""

import json
import re
from pathlib import Path

import pytest

import nvcoll.training as training
from nvcoll.training.prediction import PARTS

DOCS = Path(__file__).parents[2] / "docs"
GUIDE, FORMAT = ((DOCS / name).read_text() for name in ("train/plan.md", "reference/training-step.md"))
EIGHT_NODES = "hgx-h100x8+ib-ndr-8"
TOML = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture(scope="module")
def llama():
    return training.plan("llama3-70b", on=EIGHT_NODES, tp=8, pp=2, global_batch=128)


def test_the_model_of_the_page_is_llama3_8b(tmp_path):
    (file := tmp_path / "mine.toml").write_text(next(text for text in TOML if "hidden" in text))
    mine, llama = (training.plan(name, on="hgx-h100", zero=3, global_batch=64) for name in (str(file), "llama3-8b"))
    assert mine.step.name.startswith("mine on 8 GPUs") and mine.seconds == pytest.approx(llama.seconds)


def test_the_software_of_the_page_is_slower_than_that_which_it_is_like(tmp_path):
    (file := tmp_path / "ours.toml").write_text(next(text for text in TOML if "like" in text))
    ours, theirs = (
        training.plan("llama3-8b", on="hgx-h100", tp=8, global_batch=64, software=name)
        for name in (str(file), "megatron-core")
    )
    assert ours.parts["tensor"] > theirs.parts["tensor"] and "with ours" in ours.step.name


def test_the_step_by_hand_is_priced():
    written = re.search(r"```json\n(.*?)```", FORMAT, re.DOTALL)
    step = training.WorkStep.from_json(written[1])
    found = training.Machine("hgx-h100").predict(step)
    assert 0.3 < found.mfu < 1 and found.fit != "too_large"
    assert set(found.parts) >= {"gemm", "elementwise", "data", "optimizer"}
    assert sum(found.parts.values()) == pytest.approx(found.seconds)


def keys(found) -> set[str]:
    """All keys of JSON, but those that are names: of groups, of blocks."""
    if isinstance(found, list):
        return set().union(*map(keys, found))
    if not isinstance(found, dict):
        return set()
    named = [one for key in ("groups", "blocks") for one in found.get(key, {}).values()]
    return set(found) | keys([value for key, value in found.items() if key not in ("groups", "blocks")]) | keys(named)


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("llama3-70b", {"tp": 8, "pp": 2}),
        ("deepseek-v3", {"pp": 8, "ep": 8, "software": "megatron-bridge"}),
        ("gemma2-9b", {"cp": 2}),
    ],
)
def test_every_field_of_a_step_is_on_its_page(model, how):
    step = json.loads(training.plan(model, on=EIGHT_NODES, global_batch=128, **how).step.to_json())
    assert keys(step) <= set(re.findall(r"`(\w+)`", FORMAT))


def test_every_part_of_the_time_has_its_row():
    assert all(f"| {words} | `{name}` |" in GUIDE for name, words in PARTS.items())


def test_pcie_costs_more_where_computing_waits_for_it():
    machines = [training.Machine(one) for one in ("hgx-h100", training.Machine("hgx-h100").fabric.what_if("pcie"))]
    sharded, tensor = (
        machines[1].plan("llama3-8b", global_batch=64, **how).seconds
        / machines[0].plan("llama3-8b", global_batch=64, **how).seconds
        for how in ({"zero": 3}, {"tp": 8})
    )
    assert 1.1 < sharded < tensor


def test_tensor_parallelism_over_nodes_exposes_more(llama):
    wide = training.plan("llama3-70b", on=EIGHT_NODES, tp=16, global_batch=128)
    assert wide.parts["tensor"] > 1.5 * llama.parts["tensor"] and wide.seconds > llama.seconds


def test_half_of_the_cards_cost_little_and_one_card_costs_more(llama):
    machine = training.Machine(EIGHT_NODES).fabric
    half, one = (
        training.plan("llama3-70b", on=machine.what_if(f"nics {cards}"), tp=8, pp=2, global_batch=128).seconds
        for cards in (4, 1)
    )
    assert llama.seconds < half < 1.05 * llama.seconds < 1.1 * llama.seconds < one


def test_a_larger_batch_makes_cards_matter_less():
    machines = [training.Machine(EIGHT_NODES)]
    machines.append(training.Machine(machines[0].fabric.what_if("nics 1")))
    costs = []
    for batch in (32, 128, 512):
        many, one = (each.plan("llama3-70b", tp=8, pp=2, global_batch=batch).seconds for each in machines)
        costs.append(one / many)
    assert costs[0] > 1.4 and costs[2] < 1.1 and costs == sorted(costs, reverse=True)


def test_a_step_waits_for_less_than_its_gradient(llama):
    alone = training.Machine(EIGHT_NODES).fabric.predict("all_reduce", 140 * 10**9).time_us / 1e6
    assert llama.parts["data"] < 0.5 * alone and llama.parts["data"] < 0.05 * llama.seconds


def test_the_runs_of_fine_tuning_are_predicted_as_the_page_says(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS.parent / "tools" / "training"))
    import fine_tuning

    shown = [line for line in GUIDE.splitlines() if re.match(r"\| (Llama|Qwen) .* \(", line)]
    assert len(shown) >= 12
    assert set(shown) <= set(fine_tuning.lines(list(fine_tuning.compared())))
