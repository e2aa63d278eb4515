"""Published training steps become requests that the planner accepts, and hold what the text of each source says."""

import csv
import json
from collections import Counter

import numpy as np
import pytest
import steps

from nvcoll.training.models import software, software_of

import training_rows
from training_rows import DATA, MEASURED, SYSTEMS, published

ROWS = published()
BY_ID = {row.id: row for row in ROWS}


def test_every_row_is_planned():
    assert len(ROWS) == len(BY_ID) == 2472
    for row in ROWS:
        step = row.step()
        assert step.gpus == row.gpus and row.seconds > 0, row.id


def test_every_run_of_nanotron_is_planned():
    rows = published(DATA / "nanotron-full.csv")
    assert len(rows) == 1702
    assert all(row.step().gpus == row.gpus for row in rows)
    assert all(row.memory_gb for row in rows)


def test_tables_name_each_other():
    tables = {name: list(csv.DictReader((DATA / f"{name}.csv").open(newline=""))) for name in ("models", "origins")}
    rows = [row for name in ("measurements", "nanotron-full") for row in csv.DictReader((DATA / f"{name}.csv").open())]
    assert {row["model"] for row in rows} == {row["model"] for row in tables["models"]}
    assert {row["origin"] for row in rows} == {row["origin"] for row in tables["origins"]}
    assert {row["system"] for row in rows} == set(SYSTEMS) >= set(MEASURED)
    assert all(row["where"] and row["year"] for row in tables["origins"])


def test_layouts_use_all_gpus_and_the_whole_batch():
    for row in ROWS:
        words = row.words
        assert words["tp"] * words["pp"] * words["cp"] * words["dp"] == row.gpus, row.id
        assert words["global_batch"] % (words["micro_batch"] * words["dp"]) == 0, row.id


def test_machines_have_the_gpus_of_their_rows():
    assert training_rows.machine("dgx-h100", 4) == "hgx-h100"
    assert training_rows.machine("dgx-h100", 512) == "hgx-h100x64+ib-ndr-8"
    assert training_rows.machine("dgx-gb200", 64) == "gb200-64"
    assert training_rows.machine("dgx-gb300", 256) == "gb300-64x4+ib-xdr-4"
    assert {row.gpu for row in ROWS if row.machine.startswith("dgx2")} == {"v100-sxm3"}


def test_what_no_text_tells_is_listed():
    counts = Counter(guess for row in ROWS for guess in row.guesses)
    assert counts["recompute"] == 437 and counts["micro_batch"] == 9
    assert not BY_ID["megatron_sc21-0001"].guesses


def of(source, model, gpu=None, version=None, **words):
    """The rows of a source and model; there must be some."""
    with (DATA / "measurements.csv").open(newline="") as file:
        versions = {row["id"]: row["version"] for row in csv.DictReader(file)}
    found = [
        row
        for row in ROWS
        if (row.source, row.model["name"]) == (source, model)
        and gpu in (None, row.gpu)
        and version in (None, versions[row.id])
        and all(row.words[key] == value for key, value in words.items())
    ]
    assert found, (source, model)
    return found


# Software, what is computed again (GEMMs, attention, element-wise work), bytes of gradients, what hides.
BARE = {"sharded"}
EAGER = {"data", "sharded"}
RECIPES = {"tensor", "data", "sends", "sharded"}
EXPECTED = [
    (of("megatron_2020", "megatron2020-8B"), "megatron-2020", (1, 1, 1), 2, BARE),
    (of("megatron_sc21", "megatron-gpt-39B"), "megatron", (1, 1, 1), 4, BARE),
    (of("megatron_act_recompute", "korthikanti-gpt-175B", sequence_parallel=True), "megatron", (0, 1, 0), 4, BARE),
    (of("megatron_act_recompute", "korthikanti-gpt-175B", sequence_parallel=False), "megatron", (1, 1, 1), 4, BARE),
    (of("mt_nlg", "mt-nlg-530b"), "megatron-deepspeed", (1, 1, 1), 4, BARE),
    (of("zero_bubble", "zb-6.2B"), "megatron", (0, 0, 0), 4, BARE),
    (of("internevo", "internlm-7b", zero=1), "internevo", None, 2, EAGER),
    (of("nanotron_ultrascale", "nanotron-80b"), "nanotron", (0, 0, 0), 4, BARE),
    (of("tinyllama", "tinyllama-1.1b"), "lit-gpt", (0, 0, 0), 2, EAGER),
    # A name that ends like another: what holds for 5B does not hold for 175B.
    (of("jax_toolbox_pax", "gpt3-5b"), "pax", (0, 1, 1), 2, {"data"}),
    (of("jax_toolbox_pax", "gpt3-175b"), "pax", (1, 1, 1), 2, {"data"}),
    (of("jax_toolbox_pax", "gpt3-126m"), "pax", (1, 1, 1), 2, {"data"}),
    (of("dgxc_benchmarking", "gpt3-5b"), "pax", (0, 1, 1), 2, {"data"}),
    (of("dgxc_benchmarking", "llama2-70b"), "maxtext", (32 / 51, 1, 1), 2, EAGER),
    (of("jax_toolbox_maxtext", "llama2-7b"), "maxtext", (0, 0, 1), 2, EAGER),
    (of("megatron_readme_h100", "mcore-gpt-177B"), "megatron-core", (0, 0, 0), 4, RECIPES - {"sends"}),
    (of("megatron_llama_example", "llama3-8b"), "megatron-core", (0, 0, 0), 2, RECIPES),
    (of("nemo_docs_2407", "llama3-70b"), "nemo", (0, 0, 0), 2, RECIPES),
    (of("dgxc_benchmarking", "llama3.1-405b", "h100-sxm"), "nemo", (0, 0, 0), 2, RECIPES),
    (of("dgxc_benchmarking", "deepseek-v3", "h100-sxm"), "nemo", (0.2, 0, 0), 2, RECIPES),
    (of("megatron_bridge", "llama3-70b"), "megatron-bridge", (0, 0, 0), 2, RECIPES),
    (of("megatron_bridge", "deepseek-v3", "b200", "25.11"), "megatron-bridge", (0.1, 0, 0), 2, None),
    (of("megatron_bridge", "gpt-oss-120b", "h100-sxm"), "megatron-bridge", (0, 0, 0.6), 2, RECIPES),
    (of("megatron_bridge", "qwen3-30b-a3b", "gb300", "26.06"), "megatron-bridge-26.06", (0, 0, 0), 2, None),
    (of("torchtitan", "llama3-70b"), "torchtitan", (1, 1, 1), 4, EAGER),
]

NAMES = [f"{rows[0].source} {rows[0].model['name']}" for rows, *_ in EXPECTED]


@pytest.mark.parametrize(("rows", "name", "again", "gradient", "hides"), EXPECTED, ids=NAMES)
def test_what_is_assumed_of_a_source_and_model_is_what_its_text_says(rows, name, again, gradient, hides):
    for row in rows:
        fields = software_of(row.software, row.overrides)
        assert row.software == name, row.id
        parts = tuple(row.words["recompute"][part] for part in ("gemm", "attention", "elementwise"))
        assert again is None or parts == pytest.approx(again, abs=1e-4), row.id
        assert fields["gradient_bytes"] == gradient, row.id
        found = {what for what in ("tensor", "data", "sends", "experts", "sharded") if fields[f"overlaps_{what}"]}
        assert hides is None or found == hides, row.id


MEMORY = [
    # Precision-aware optimizers: 16 bits of master weights with bf16, none with FSDP; moments of DeepSeek in bf16.
    (of("megatron_bridge", "gpt-oss-120b", dtype="bf16"), {"optimizer_bytes": 10}),
    (of("megatron_bridge", "llama3-70b", "gb200", "26.04", zero=3), {"optimizer_bytes": 12, "offloaded_layers": 40}),
    (of("megatron_bridge", "deepseek-v3", "gb200", dtype="bf16"), {"optimizer_bytes": 6, "weighs_results": False}),
    (of("megatron_bridge", "deepseek-v3", "gb200", dtype="fp8"), {"optimizer_bytes": 8}),
    (of("dgxc_benchmarking", "grok1-314b", "gb200"), {"divides_experts": True}),
    (of("dgxc_benchmarking", "grok1-314b", "h100-sxm"), {"divides_experts": False}),
]


@pytest.mark.parametrize(("rows", "expected"), MEMORY)
def test_recipes_save_the_memory_that_their_text_says(rows, expected):
    for row in rows:
        fields = software_of(row.software, row.overrides)
        assert {name: fields[name] for name in expected} == expected, row.id


def test_mixed_precision_of_composer_sets_the_bytes_of_gradients():
    with (DATA / "measurements.csv").open(newline="") as file:
        details = {row["id"]: row["dtype_detail"] for row in csv.DictReader(file)}
    for row in ROWS:
        if row.source == "llm_foundry":
            gradient = software_of(row.software, row.overrides)["gradient_bytes"]
            assert gradient == (2 if "PURE" in details[row.id] else 4), row.id


def test_overrides_are_fields_of_software():
    known = {name for fields in software().values() for name in fields}
    for row in ROWS:
        assert set(row.overrides) <= known | {"host_experts"}, row.id


def test_the_tool_prints_what_it_assumes_and_single_rows(capsys):
    training_rows.main([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["source", "model", "GPU", "software"] and len(lines) > 100
    training_rows.main(["--id", "torchtitan-0001"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["gpu"] == "a100-sxm" and row["words"]["recompute"]["gemm"] == 0.5


def test_runs_that_failed_are_planned_or_impossible_and_most_do_not_fit():
    needs = np.array([one.part for one in steps.of_failed()])
    assert len(needs) == 1376
    impossible, large = np.isinf(needs), needs[needs > 0.5]
    assert np.mean(impossible) < 0.09
    assert np.mean(needs > 1) > 0.78 and np.mean(large > 1) > 0.84 and np.mean(large > 0.9) > 0.9


def test_runs_that_ran_fit_or_may_fit():
    needs = np.array([one.part for one in steps.of_ran()])
    assert np.mean(needs <= 1) > 0.99 and np.mean(needs <= 0.9) > 0.92
    wrong = {one.run for one in steps.of_ran() if one.fit == "too_large"}
    assert wrong == {"megatron_bridge-0104", "megatron_bridge-0106", "megatron_bridge-0194"}


def test_the_tool_names_runs_that_are_judged_wrongly(capsys):
    steps.memory(names=True)
    text = capsys.readouterr().out
    assert "3 runs that ran, and are said not to fit" in text and ": megatron_bridge-0194" in text
    assert "runs that failed, need half of a GPU or more, and are said to fit" in text


def test_published_memory_is_near_to_what_is_predicted():
    found = steps.of_measured()
    assert len(found["nanotron_ultrascale"]) == 1702 and len(found["bigscience_bloom"]) == 7
    assert np.median(np.abs(np.array(found["nanotron_ultrascale"]) - 1)) < 0.11
    assert np.median(np.abs(np.array(found["the nearer of 2 settings"]) - 1)) < 0.06
    assert all(0.8 < ratio < 1.1 for ratio in found["bigscience_bloom"])
