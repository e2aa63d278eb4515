"""The report of `nvcoll plan`, `dryrun` and `price`: one JSON with one schema, rows, sums of parts, short forms."""

import copy
import json
import pickle
from pathlib import Path

import json_schemas
import jsonschema
import numpy as np
import pytest
from command_line import cli, refused

import nvcoll
from nvcoll import InvalidArgument
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.training import Machine, Report, plan, sweep
from nvcoll.training.prediction import EXPOSED, IDLE, PARTS
from nvcoll.training.report import schema

RECORDED = Path(__file__).parents[2] / "docs" / "recordings" / "llama3-8b-fsdp2.json.gz"
TRACES = Path(__file__).parents[1] / "traces"
NODES = "hgx-h100x8+ib-ndr-8"
SWEEP = ("plan", "llama3-8b", "--sweep", "--tp", "1", "--pp", "1", "--what-if", "pcie")

COMMANDS = {
    "a plan": ("plan", "llama3-8b", "--zero", "3"),
    "machines": ("plan", "llama3-8b", "--zero", "3", "--what-if", "pcie", "--dollars-per-gpu-hour", "2"),
    "a measured step": ("plan", "llama3-8b", "--zero", "3", "--global-batch", "64", "--measured", "7s"),
    "a sweep": SWEEP,
    "a sweep that finds nothing": ("plan", "llama3-70b", "--sweep", "--pp", "1", "--tp", "1"),
    "a recording": ("price", RECORDED, "--on", f"{NODES},hgx-h200x8+ib-ndr-8"),
    "a compiled function": ("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100,hgx-b200"),
    "a trace": ("price", TRACES / "ddp_two_a100.json.gz", "--from", "hgx-a100", "--on", "hgx-h100"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_every_command_prints_is_what_the_schema_says(command):
    printed = json.loads(cli(*command, "--json").stdout)
    json_schemas.validate(schema(), printed)
    assert printed["command"] == command[0]
    for one in printed["reports"]:
        together = one["computes_s"] + one["exposed_s"] + one["idle_s"]
        assert together == pytest.approx(one["seconds"]) == sum(one["parts"].values())


@pytest.mark.parametrize("command", ["plan", "dryrun", "price"])
def test_every_command_prints_the_schema(command):
    printed = json.loads(cli(command, "--schema").stdout)
    assert printed["$id"] == "nvcoll.report/1"
    jsonschema.Draft202012Validator.check_schema(printed)


def test_the_parts_of_the_time_are_computing_exposed_or_idle():
    assert not set(EXPOSED) & set(IDLE) and set(EXPOSED) | set(IDLE) < set(PARTS)
    found = plan("llama3-70b", on=NODES, tp=8, pp=2, global_batch=128)
    computing = ("gemm", "attention", "elementwise", "recompute", "optimizer")
    assert found.computes_s == pytest.approx(sum(found.parts.get(name, 0.0) for name in computing))
    assert found.exposed_s == pytest.approx(sum(found.parts.get(name, 0.0) for name in EXPOSED))
    assert found.exposed_s > found.idle_s >= found.parts["bubble"]


def test_a_step_that_may_fit_does_not_pass_as_one_that_fits():
    tight = next(one for one in sweep("llama3-8b", "hgx-h100", global_batch=64).candidates if one.fit == "tight")
    found = plan("llama3-8b", on="hgx-h100", **tight.layout)
    assert found.fit == "tight" and not found.fits and not tight.fits
    fullest = max(found.memory, key=lambda one: one.gib)
    assert fullest.least_bytes / 2**30 < found.gpu_memory_gib < fullest.most_bytes / 2**30


def test_a_step_of_unknown_memory_does_not_fit_with_nothing():
    found = json.loads(cli("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100", "--json").stdout)["reports"][0]
    assert found["fit"] is None and found["memory"] is None and found["memory_gib"] is None
    text = cli("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100,hgx-b200").stdout
    assert "GiB" not in text and "tokens" not in text and "idle" in text


def test_a_report_of_one_machine_names_it_and_how_much_of_it_the_step_uses():
    assert f"\nmachine     {NODES}\nstep  " in cli("price", RECORDED, "--on", NODES).stdout
    larger = NODES.replace("x8", "x16")
    assert f"\nmachine     {larger}, 64 of 128 GPUs\nstep  " in cli("price", RECORDED, "--on", larger).stdout


def test_rows_are_machines_or_layouts():
    lines = cli(*COMMANDS["machines"], "--csv").stdout.splitlines()
    assert lines[0].startswith("machine,gpus,layout,seconds,low_s") and lines[0].endswith(
        ",fit,dollars_per_1e12_tokens"
    )
    found = json.loads(cli(*COMMANDS["machines"], "--json").stdout)["reports"]
    prices = [one["dollars_per_1e12_tokens"] for one in found]
    assert prices == [pytest.approx(float(line.split(",")[-1])) for line in lines[1:]] and prices[0] < prices[1]
    assert [line.split(",")[0] for line in lines[1:]] == ["hgx-h100", "hgx-h100 with pcie"]
    rows, found = cli(*SWEEP, "--csv").stdout.splitlines(), json.loads(cli(*SWEEP, "--json").stdout)
    assert len(rows) == 1 + sum(len(one["candidates"]) for one in found["sweep"])
    assert "--json and --csv print different things" in refused("plan", "llama3-8b", "--json", "--csv")


def test_layouts_of_a_sweep_have_their_price_and_a_step_without_prices_has_none():
    found = json.loads(cli(*SWEEP, "--dollars-per-gpu-hour", "2", "--json").stdout)
    best, report = found["sweep"][0]["candidates"][0], found["reports"][0]
    assert best["dollars_per_1e12_tokens"] == pytest.approx(report["dollars_per_1e12_tokens"]) and report["mfu"]
    assert json.loads(cli(*SWEEP, "--json").stdout)["reports"][0]["dollars_per_1e12_tokens"] is None


def test_the_tokens_of_a_trace_can_be_given():
    found = json.loads(cli("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100", "--tokens", "8192", "--json").stdout)
    (found,) = found["reports"]
    assert found["tokens_per_second"] == pytest.approx(8192 / 8 / found["seconds"])


def test_a_machine_with_fewer_gpus_than_ranks_is_refused_with_what_to_do():
    said = refused("price", RECORDED, "--on", "hgx-h100")
    assert "hgx-h100 has 8 GPUs, and a recording keeps its 64 ranks: pass a machine of at least 64 GPUs" in said
    assert "or record again with -n 8" in said
    said = refused("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100,4xH100")
    assert "has 4 GPUs, and a step keeps its 8 ranks: pass a machine of at least 8 GPUs" in said


def test_options_of_traces_are_refused_for_other_files():
    assert "--from and --step are for traces" in refused("price", RECORDED, "--from", "hgx-h100")
    assert "leave out --from and --step" in refused("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100", "--step", "3")


def test_a_measured_step_is_in_the_report_and_scales_what_to_try():
    words = ("plan", "llama3-70b", "--on", NODES, "--tp", "16", "--global-batch", "128")
    plain, scaled = (cli(*words, *more).stdout.splitlines() for more in ((), ("--measured", "20s")))
    assert any(line.startswith("measured    1.25 times the prediction") for line in scaled)

    def tries(lines):
        return [line.split(": ")[1].split(", ")[1] for line in lines if line.startswith("try")]

    assert tries(plain) == tries(scaled) == ["9 % faster"]


def test_short_forms_are_short_and_say_the_best():
    machine = Machine("hgx-h100")
    found = sweep("llama3-8b", machine, global_batch=64)
    assert len(repr(found)) < 200 and found.best.words in repr(found)
    assert len(found._repr_html_()) < 3000 and str(len(found.candidates)) in found._repr_html_()
    step = machine.plan("llama3-8b", **found.best.layout)
    assert step.words == found.best.words and "matrix products" in step._repr_html_()
    report = Report("plan", "llama3-8b", [machine], [step])
    assert len(repr(report)) < 300 and "where the time goes" in str(report) and "<pre>" in report._repr_html_()


def test_steps_and_sweeps_are_pickled_and_copied():
    machine = Machine("hgx-h100")
    planned = machine.plan("llama3-8b", zero=3)
    recorded = Machine(NODES).predict(Recording.load(RECORDED).step)
    found = sweep("llama3-8b", machine, global_batch=64, tp=1, pp=1)
    for again in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        assert again(planned.step).to_json() == planned.step.to_json()
        for one in (found, planned, recorded, planned.calibrated(planned.seconds), *recorded.collectives[:2]):
            assert again(one) == one
        for one in (planned, recorded):
            assert again(one).to_dict() == one.to_dict()
            assert again(one.memory[0]) == one.memory[0] and again(one.roles[0]) == one.roles[0]


def test_an_option_that_does_not_exist_is_refused_by_the_type_checker(tmp_path):
    api = pytest.importorskip("mypy.api")
    (file := tmp_path / "wrong.py").write_text(
        "import nvcoll.training as t\n"
        'found = t.plan("llama3-8b", on="hgx-h100", tp=8, dtype="fp8")\n'
        'best = t.sweep("llama3-8b", "hgx-h100", global_batch=64).best\n'
        't.plan("llama3-8b", on="hgx-h100", **best.layout)\n'
        't.plan("llama3-8b", on="hgx-h100", gbs=64)\n'
        't.sweep("llama3-8b", "hgx-h100", tp="8")\n'
    )
    said, *_ = api.run(["--strict", "--follow-imports=silent", str(file)])
    lines = [line.split(":")[1] for line in said.splitlines() if ": error:" in line]
    assert lines == ["5", "6"], said


def test_an_option_that_does_not_exist_is_refused_when_it_runs():
    for call in (plan, sweep):
        with pytest.raises(InvalidArgument, match="no option of a plan is called `gbs`: choose from global_batch, "):
            call("llama3-8b", on="hgx-h100", gbs=64)


def test_nothing_to_draw_is_said():
    with pytest.raises(nvcoll.InvalidArgument, match="nothing to draw"):
        Report("plan", "", [], []).page()


def test_a_number_of_numpy_is_a_number_and_an_object_is_refused():
    assert plan("llama3-8b", on="hgx-h100", tp=np.int64(2)) == plan("llama3-8b", on="hgx-h100", tp=2)
    with pytest.raises(
        InvalidArgument, match="an option of a plan is of type object: pass a number, a word or a mapping"
    ):
        plan("llama3-8b", on="hgx-h100", tp=object())
