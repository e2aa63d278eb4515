"""`nvcoll plan`: what the command prints and refuses."""

import json

import pytest
from command_line import cli, refused

NODES = "hgx-h100x8+ib-ndr-8"
STEP = ("plan", "llama3-70b", "--on", NODES, "--tp", "8", "--pp", "2", "--global-batch", "128")


def test_one_machine_is_a_step_in_detail():
    text = cli(*STEP).stdout
    labels = {line[:12].strip() for line in text.splitlines()[:5]}
    assert labels >= {"layout", "step", "memory", "limit"}
    assert "the GPU computes" in text and "\ntry " in text
    assert text.count("shard all_gather") == 1 and "each stage, once" in text, "both stages make the same collectives"


def test_changes_are_rows_beside_the_machine_and_the_layout_is_named():
    lines = cli(*STEP, "--what-if", "nics 4", "--what-if", "pcie").stdout.splitlines()
    assert lines[1] == "layout      TP 8  PP 2  DP 4  ZeRO 1  micro-batch 1; global batch 128, 8,192 tokens each"
    assert [line.split("  ")[0] for line in lines[3:6]] == [NODES, f"{NODES} with nics 4", f"{NODES} with pcie"]


def test_machines_of_other_sizes_say_so():
    lines = cli("plan", "llama3-8b", "--on", "hgx-h100,hgx-h100x2+ib-ndr-8", "--zero", "3").stdout.splitlines()
    assert lines[0].endswith("other machines have more or fewer GPUs")
    sizes = "global batch 256, 8,192 tokens each"
    assert lines[1] == f"layout      DP 8  ZeRO 3  micro-batch 1, or DP 16  ZeRO 3  micro-batch 1; {sizes}"


def test_a_sweep_has_a_table_for_each_change():
    how = ("plan", "llama3-8b", "--sweep", "--tp", "1", "--pp", "1", "--what-if", "pcie")
    text = cli(*how).stdout
    assert text.count(" layouts priced") == 2 and "llama3-8b on hgx-h100 with pcie: " in text
    assert text.count("\nfixed       ZeRO 1, 1f1b, bf16: sweep again with --zero 3\n") == 2
    found = json.loads(cli(*how, "--json").stdout)
    assert [one["machine"] for one in found["sweep"]] == ["hgx-h100", "hgx-h100 with pcie"]


def test_a_sweep_of_machines_has_the_best_layout_of_each_the_fastest_first():
    on = "8xh100,2x4090,gb10-1,hgx-a100"
    how = ("plan", "llama3-8b", "--sweep", "--zero", "3", "--global-batch", "16", "--sequence", "2048", "--on", on)
    lines = cli(*how).stdout.splitlines()
    assert lines[0].split() == [
        "assumed",
        "the",
        "machine",
        "is",
        "hgx-h100:",
        "8",
        "x",
        "H100,",
        "NVLink",
        "4,",
        "NVSwitch",
    ]
    head = next(place for place, line in enumerate(lines) if line.startswith("machine "))
    assert lines[head - 1] == "llama3-8b: the best layout on 2 machines"
    assert [line.split()[0] for line in lines[head + 1 : head + 3]] == ["hgx-h100", "hgx-a100"]
    assert any(line.startswith("does not fit") and "rtx4090-2-staged, gb10-1" in line for line in lines)
    assert not any(" layouts priced" in line for line in lines)
    assert "--on any is for --sweep" in cli("plan", "llama3-8b", "--on", "any", status=2).stderr


def test_a_sweep_that_finds_nothing_begins_with_the_least_memory():
    lines = cli("plan", "llama3-70b", "--sweep", "--pp", "1").stdout.splitlines()
    assert lines[0].endswith(", 0 fit or may fit") and lines[2] == "layouts that need the least memory:"
    memory = [int(line.split()[-4]) for line in lines[4:] if line.endswith("does not fit")]
    assert len(memory) == 12 and memory == sorted(memory)
    assert "fits: pass --sweep, or more GPUs" in cli("plan", "llama3-70b", "-n", "1", "--micro-batch", "2").stdout


def test_a_limit_of_memory_is_gib_or_a_size():
    words = ("plan", "llama3-8b", "--zero", "3", "--max-memory")
    held = json.loads(cli(*words[:-1], "--json").stdout)["reports"][0]["memory_gib"]
    over, under = held * 2**30 / 1e9, (held + 0.5) * 2**30 / 1e9
    for limit in (f"{held + 0.5}", f"{under:.2f}GB", f"{held + 0.5:.2f}GiB"):
        assert cli(*words, limit, status=0).stderr == ""
    for limit in (f"{held - 0.5}", f"{int(held)}GB", f"{int(held)}GiB"):
        assert f"more than --max-memory {limit}" in cli(*words, limit, status=3).stderr
    assert over > int(held)
    for wrong in ("much", "-1", "nan"):
        said = cli(*words, wrong, status=2).stderr
        assert f"--max-memory {wrong} is no memory: pass GiB, as 70, or a size, as 70GiB or 75GB" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("llama3-405b",), "did you mean llama3.1-405b"),
        (("llama3-8b", "--sequence", "-5"), "Invalid value for '--sequence'"),
        (("train.sh",), "train.sh: No such file or directory"),
        (("llama3-8b", "--sweep", "--trace", "x"), "--trace is of one layout"),
        (("llama3-8b", "--sweep", "--save", "x"), "--save is of one layout"),
        (("llama3-8b", "--dollars-per-gpu-hour", "-3"), "has the price -3: pass 0 or more"),
        (("llama3-70b", "-n", "64"), "pass a cluster, as --on hgx-h100x8+ib-ndr-8"),
        (("llama3-8b", "-n", "4,8"), "several numbers of GPUs are for --sweep"),
        (("llama3-8b", "--measured", "fast"), "--measured fast is no time"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_to_do(words, said):
    assert said in refused("plan", *words)


def test_each_machine_that_was_taken_for_another_name_is_said():
    text = cli("plan", "llama3-8b", "--on", "8xh100,HGX-H100x2+ib-ndr-8", "--zero", "3").stdout
    assert text.startswith("assumed     the machine is hgx-h100: 8 x H100") and text.count("the machine is") == 1


WAITS = ("plan", "llama3-8b", "--zero", "0", "--offload", "optimizer", "--on")


@pytest.mark.parametrize(
    ("machine", "size", "fit", "words"),
    [
        ("hgx-h100", "1,800 to 2,048 GiB", "fits", "fits"),
        ("hgx-h100 with ram 1024", "1,024 GiB", "tight", "may fit"),
        ("hgx-h100 with ram 512", "512 GiB", "too_large", "does not fit"),
        ("rtx5090-8-staged", "64 to 128 GiB", "too_large", "does not fit"),
    ],
)
def test_what_waits_in_ram_is_judged_as_the_memory_of_gpus_is(machine, size, fit, words):
    text = cli(*WAITS, machine).stdout
    assert f"\nRAM         718 to 1,436 GiB wait on the fullest host, which has {size}: {words}\n" in text
    [found] = json.loads(cli(*WAITS, machine, "--json").stdout)["reports"]
    assert (found["ram_fit"], [round(one) for one in found["ram_gib"]]) == (fit, [718, 1436]), (
        "12 bytes, and twice that"
    )
    assert found["fit"] == fit or found["memory_gib"] > found["gpu_memory_gib"]


def test_ram_that_is_not_known_is_assumed_and_never_fits(tmp_path):
    file = tmp_path / "box.txt"
    file.write_text("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n")
    text = cli(*WAITS, str(file), "--gpu", "h100-pcie").stdout
    assert text.startswith("assumed     RAM of a host of box.txt: an unknown size; say yours, as --on ")
    assert "the fullest host, which has an unknown size: may fit\n" in text


def test_a_sweep_calls_no_layout_fitting_whose_ram_is_too_small():
    how = ("plan", "llama3-8b", "--sweep", "--offload", "optimizer", "--on")
    swept = {ram: json.loads(cli(*how, f"hgx-h100 with ram {ram}", "--json").stdout) for ram in (64, 4096)}
    fits = {ram: {one["fit"] for one in found["sweep"][0]["candidates"]} for ram, found in swept.items()}
    assert fits[64] == {"too_large"} and "fits" in fits[4096]
    assert swept[64]["reports"] == []
    text = cli(*how, "hgx-h100 with ram 64").stdout
    assert ", 0 fit or may fit\n" in text and "does not fit in RAM" in text
    assert "assumed" not in text, "the machine says it"


def test_a_tray_of_a_rack_is_a_host():
    of = {n: json.loads(cli(*WAITS, "gb200-nvl72", "-n", str(n), "--json").stdout)["reports"][0] for n in (4, 8)}
    assert of[4]["ram_gib"] == of[8]["ram_gib"] and of[4]["host_ram_gib"] == [884, 960]


def test_fine_tuning_has_words_and_what_is_assumed_of_ram_is_said():
    how = ("--lora", "16", "--quantize", "nf4", "--offload", "optimizer", "--optimizer", "paged-adamw-8bit")
    lines = cli("plan", "llama3.1-8b", "--on", "rtx4090-1", "--global-batch", "1", "--sequence", "2048", *how).stdout
    assert "LoRA 16  base nf4  paged-adamw-8bit  optimizer in RAM; global batch 1" in lines
    assert lines.startswith("assumed     the machine is rtx4090-2-staged[0]: 1 of ")
    assert (
        "\n            paged states" in lines
        and "\n            RAM of a host of rtx4090-2-staged[0]: 32 to 128 GiB; say" in lines
    )
    assert "\nfrozen parameters " in lines
    swept = cli("plan", "llama3-8b", "--sweep", "--tp", "1", "--pp", "1", "--lora", "16", "--dora").stdout
    assert "\nfixed       ZeRO 1, 1f1b, bf16, lora 16, dora: sweep again with --zero 3\n" in swept
    assert "selective" in swept and "none  DoRA" not in swept and "  DoRA 16" not in swept
    assert "pass their rank" in refused("plan", "llama3.1-8b", "--on", "rtx4090-1", "--quantize", "nf4")
