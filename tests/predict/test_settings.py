"""NCCL's environment variables, `settings=` and ``--env``: what they change in Python and on the command line.

Rust tests say what each variable does to NCCL's choice."""

import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import command_line
import pytest

import nvcoll
from nvcoll import InvalidArgument
from nvcoll._nvcoll import nccl_settings
from nvcoll.cli.predict.rows import Question

MIB, GIB = 1 << 20, 1 << 30
ROOT = Path(__file__).parents[2]
CLUSTER = "hgx-h100x4+ib-ndr-8"


cli = functools.partial(command_line.cli, "predict")


def test_a_value_is_a_text_or_a_whole_number():
    board = nvcoll.fabric("hgx-h100")
    texts = [board.predict("all_reduce", GIB, settings={"NCCL_NVLS_ENABLE": off}) for off in (0, "0", False)]
    assert {str(one) for one in texts} == {str(texts[0])} and texts[0].algorithm == "Ring"
    assert board.nccl("all_reduce", GIB, settings={"NCCL_NVLS_ENABLE": 0}).chosen.algorithm == "Ring"
    assert board.predict("all_reduce", GIB).algorithm == "NVLS", "predictions with other settings are kept apart"
    assert texts[0].floor_us > board.floor("all_reduce", GIB), "no schedule without the switch is as fast"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"NCCL_ALG": "ring"}, "no setting of NCCL is called `NCCL_ALG`: did you mean NCCL_ALGO?"),
        ({"LD_LIBRARY_PATH": "/"}, "choose from NCCL_ALGO, NCCL_PROTO"),
        ({"NCCL_ALGO": "rings"}, "no algorithm of NCCL is called `rings`"),
        ({"NCCL_PROTO": "allreduces:LL"}, "no collective of NCCL is called `allreduces`: did you mean allreduce?"),
        ({"NCCL_MAX_CTAS": 0}, "NCCL_MAX_CTAS: `0` is no whole number from 1"),
        ({"NCCL_CROSS_NIC": 3}, "pass one of 0, 1, 2"),
        ({"NCCL_ALGO": None}, "settings must be a mapping"),
        ({"NCCL_MAX_CTAS": 1.5}, "settings must be a mapping"),
        ({3: "ring"}, "settings must be a mapping"),
        ([("NCCL_ALGO", "ring")], "settings must be a mapping"),
    ],
)
def test_what_cannot_be_read_is_refused(given, message):
    board = nvcoll.fabric("hgx-h100")
    for ask in (board.predict, board.nccl):
        with pytest.raises(InvalidArgument, match=re.escape(message)):
            ask("all_reduce", MIB, settings=given)


def test_names_of_algorithms_and_protocols_may_be_in_any_case():
    board = nvcoll.fabric("hgx-h100")
    found = board.predict("all_reduce", MIB, algorithm="ring", protocol="ll128")
    assert (found.algorithm, found.protocol) == ("Ring", "LL128")
    with pytest.raises(InvalidArgument, match=re.escape("did you mean Ring?")):
        board.predict("all_reduce", MIB, algorithm="rin")


def test_the_page_has_a_row_for_every_variable():
    page = (ROOT / "docs" / "predict" / "predictions.md").read_text()
    for row in nccl_settings():
        default = "-" if row.default is None else row.default
        line = f"| `{row.name}` | {row.since} | {row.values} | {default} | {row.changes} |"
        assert line in page, line


def test_the_command_line_sets_variables():
    text = cli(
        "all_reduce", "-b", "8M", "--on", CLUSTER, "--env", "NCCL_ALGO=tree", "--env", "NCCL_PROTO=simple"
    ).stdout
    assert "launched process_per_gpu, NCCL_ALGO=tree, NCCL_PROTO=simple" in text and "Tree/Simple" in text
    arguments = ("all_reduce", "-b", "1M", "--env", "NCCL_ALGO=ring", "--env", "NCCL_PROTO=ll")
    printed = json.loads(cli(*arguments, "--json").stdout)
    (row,) = printed["predictions"]
    assert printed["settings"] == {"NCCL_ALGO": "ring", "NCCL_PROTO": "ll"}
    found = nvcoll.fabric("hgx-h100").predict("all_reduce", MIB, algorithm="Ring", protocol="LL")
    assert (row["algorithm"], row["protocol"], row["time_us"]) == ("Ring", "LL", found.time_us)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("NCCL_ALGO",), "--env NCCL_ALGO has no value: pass --env NCCL_ALGO=VALUE"),
        (("NCCL_ALGO=ring", "NCCL_ALGO=tree"), "--env NCCL_ALGO is given twice"),
        (("NCCL_SPEED=fast",), "no setting of NCCL is called `NCCL_SPEED`"),
    ],
)
def test_the_command_line_refuses_what_is_no_setting(given, message):
    env = [word for one in given for word in ("--env", one)]
    assert message in cli("all_reduce", "--on", "hgx-h100", *env, status=2).stderr


@pytest.mark.parametrize("command", [("run",), ("compare", "ring"), ("check",)])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--env", "NCCL_SPEED=fast"), "no setting of NCCL is called `NCCL_SPEED`"),
        (("--env", "NCCL_ALGO=Nope"), "no algorithm of NCCL is called `Nope`"),
        (("--env", "NCCL_BUFFSIZE=0"), "NCCL_BUFFSIZE: `0` is no whole number from 1"),
        (("--nccl-version", "xyz"), "no NCCL version is called `xyz`"),
    ],
)
def test_what_answers_without_a_prediction_refuses_settings_too(command, given, message):
    name, *operands = command
    words = operands or [str(Path(__file__))]
    assert message in command_line.cli(name, "--on", "hgx-h100", *given, *words, status=2).stderr


def stand_in(algorithm, low, time, high, trust="validated on 9 systems"):
    times = {"low_us": low, "time_us": time, "high_us": high}
    return SimpleNamespace(algorithm=algorithm, nbytes=MIB, **times, is_validated=trust.startswith("validated"))


def faster(others, *, tag="v2.30.7-1", found=None, **given):
    """Returns the faster algorithm that a question finds among stand-ins for predictions."""
    found = found or stand_in("NVLSTree", 80, 100, 120)

    def predict(collective, sizes, *, algorithm, **_):
        if algorithm not in others:
            raise InvalidArgument("it has no closed form")
        return [others[algorithm]]

    ways = [SimpleNamespace(algorithm=name, time_us=1.0) for name in (found.algorithm, "PAT", *others)]
    nccl = SimpleNamespace(tag=tag, candidates=[*ways, SimpleNamespace(algorithm="NVLS", time_us=None)])
    question = Question("all_reduce", [MIB], "process_per_gpu", None, **given)
    return question._faster(SimpleNamespace(predict=predict), found, nccl)


def test_an_algorithm_is_faster_if_times_are_apart_and_validated():
    best = faster({"Ring": stand_in("Ring", 60, 75, 90), "Tree": stand_in("Tree", 50, 60, 72)})
    assert (best.setting, best.prediction.algorithm, best.saved) == ("NCCL_ALGO=allreduce:Tree", "Tree", 0.4)
    for other in (
        stand_in("Ring", 70, 85, 99),  # inside the interval of NCCL's choice
        stand_in("Ring", 50, 75, 101),  # whose interval has NCCL's choice
        stand_in("Ring", 60, 75, 90, "not validated"),
        stand_in("Ring", 60, 75, 90, "extrapolated from 8 nodes"),
    ):
        assert faster({"Ring": other}) is None
    # 9 % is too little, however sure.
    sure = stand_in("NVLSTree", 99, 100, 101)
    assert faster({"Ring": stand_in("Ring", 90, 91, 92)}, found=sure) is None
    assert faster({"Ring": stand_in("Ring", 88, 89, 90)}, found=sure)
    unknown = stand_in("NVLSTree", 80, 100, 120, "not validated")
    assert faster({"Tree": stand_in("Tree", 50, 60, 72)}, found=unknown) is None


def test_old_versions_have_no_list_per_collective():
    tree = {"Tree": stand_in("Tree", 50, 60, 72)}
    for tag, setting in (("v2.23.4-1", "NCCL_ALGO=Tree"), ("v2.24.3-1", "NCCL_ALGO=allreduce:Tree")):
        assert faster(tree, tag=tag).setting == setting


def test_who_forces_an_algorithm_reads_of_no_other():
    assert faster({"Tree": stand_in("Tree", 50, 60, 72)}, settings={"NCCL_ALGO": "NVLSTree"}) is None


def test_the_line_of_a_faster_algorithm_is_there_where_the_library_predicts_one():
    board, sizes = nvcoll.fabric(CLUSTER), [MIB << shift for shift in range(0, 11, 2)]
    arguments = ("all_reduce", "-b", "1M", "-e", "1G", "-f", "4", "--on", CLUSTER)
    rows = json.loads(cli(*arguments, "--json").stdout)["predictions"]
    assert [row["nbytes"] for row in rows] == sizes
    named = [row for row in rows if row["faster_setting"]]
    for row in named:
        name, value = row["faster_setting"].split("=")
        with_it = board.predict("all_reduce", row["nbytes"], settings={name: value})
        assert row["faster_us"] == with_it.time_us < 0.9 * row["time_us"]
        assert with_it.time_us < row["low_us"] and with_it.high_us < row["time_us"]
    lines = [line for line in cli(*arguments).stdout.splitlines() if "would take" in line]
    assert len(lines) == bool(named)
    for line in lines:
        best = min(named, key=lambda row: row["faster_us"] / row["time_us"])
        percent = round(100 * (1 - best["faster_us"] / best["time_us"]))
        assert f"{best['faster_setting']} would take {percent} % less at {best['nbytes'] // MIB} MiB (" in line
