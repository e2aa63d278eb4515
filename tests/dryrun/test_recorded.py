"""Files of recordings: the same bytes for the same script, and an error of nvcoll for whatever else a file holds."""

import copy
import gzip
import json
from dataclasses import replace

import pytest
from dryrun_recordings import layer
from typer.testing import CliRunner

import nvcoll
import nvcoll.cli
from nvcoll.dryrun.parent.facts import facts_of
from nvcoll.dryrun.parent.launch import Request
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.wire.rank_recording import Assumption, Run

H100 = next(row for row in nvcoll._nvcoll.gpus() if row.name == "h100-sxm")

MACHINE = "hgx-h100x2+ib-ndr-8"


@pytest.fixture(scope="module")
def recorded():
    """A recording with all facts."""
    more = {"assumed": [Assumption("topk picks experts in turn", 1, 3)], "unanswered": ["cuSomething"]}
    one = layer(versions={"torch": "2.15.0"}, without_gradients={"t.py:4 forward": 0.1}, saves=["t.py:9 main"], **more)
    request = Request(__file__, world_size=one.world_size, gpu=H100)
    made = made_of([one], gpu="h100-sxm", name="test")
    return Recording(made.step, facts_of(request, [one], [Run(0, "counted", steps=2)], made)).with_facts(
        machine=MACHINE
    )


def test_a_file_is_the_same_bytes_and_says_what_it_is(tmp_path, recorded):
    one, two = tmp_path / "one", tmp_path / "two"
    recorded.save(one)
    recorded.save(two)
    assert one.read_bytes() == two.read_bytes() and Recording.load(one) == recorded
    assert Recording.load(one).with_tokens(7).step.to_json() != recorded.step.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["one", "two"], "no draft is left"


@pytest.fixture
def of_server(recorded):
    """A recording of a server: a decode and a prefill iteration."""
    iteration = {"words": "4 tokens", "server": "vLLM 1", "sequences": 4, "context": 10, "kv_bytes": 1 << 30}
    iteration |= {"kv_tokens": 4096, "longest": 1024}
    decode, prefill = (
        replace(recorded, facts=recorded.facts | {"served": iteration | {"kind": kind}})
        for kind in ("decode", "prefill")
    )
    return replace(decode, also=(prefill,))


def test_iterations_of_a_server_are_one_file_and_two_predictions_of_each_machine(tmp_path, of_server):
    path = tmp_path / "server.json.gz"
    of_server.save(path)
    assert Recording.load(path) == of_server
    run = CliRunner().invoke(nvcoll.cli.command_line(), ["price", str(path), "--json"])
    report = json.loads(run.stdout)
    assert [one["iteration"] for one in report["reports"]] == ["decode", "prefill"], run.output
    assert set(report["recordings"]) == {"h100-sxm decode", "h100-sxm prefill"}
    text = CliRunner().invoke(nvcoll.cli.command_line(), ["price", str(path)]).stdout
    assert "KV cache    4,096 tokens in 1.00 GiB: 4.0 sequences of 1,024 tokens at once" in text
    assert text.count("\nmemory  ") == 1 and "\nprefill  " in text
    both = (
        CliRunner()
        .invoke(nvcoll.cli.command_line(), ["price", str(path), "--on", f"{MACHINE},hgx-h200x2+ib-ndr-8"])
        .stdout
    )
    assert [line.split()[1] for line in both.splitlines() if line.startswith("machine ")] == ["decode", "prefill"]


def flipped(content, at=20):
    """A file with a damaged byte."""
    return content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "is no recording"),
        (gzip.compress(b"[]"), "has the schema None"),
        (gzip.compress(b'{"schema": "nvcoll.recorded/9"}'), "'nvcoll.recorded/9'"),
        (gzip.compress(b'{"schema": "nvcoll.recorded/2", "step": {}, "facts": {}}'), "has no recorded step"),
        (gzip.compress(b"{}")[:-9], "is no recording"),
        (flipped(gzip.compress(bytes(range(256)) * 9)), "is no recording"),
        (gzip.compress(b'{"schema": NaN}'), "NaN is no number"),
        (gzip.compress(b"[" * 100_000), "is no recording"),
        (gzip.compress(b'{"schema": %s}' % (b"9" * 5000)), "is no recording"),
    ],
    ids=range(9),  # a header of gzip has the time, and workers must agree on names
)
def test_a_file_that_is_none_is_refused(tmp_path, content, said):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(nvcoll.InvalidArgument, match=said):
        Recording.load(tmp_path / "file")


def places(value, path=()):
    """The paths of all values within a value."""
    for name, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, name)
        if isinstance(one, dict | list):
            yield from places(one, (*path, name))


def damaged(facts):
    """Facts with one wrong value each, and without one."""
    for *path, name in places(facts):
        for wrong in (None, [], {}, "text", -1.5, True, float("inf"), 10**400, ...):
            again = copy.deepcopy(facts)
            owner = again
            for one in path:
                owner = owner[one]
            if wrong is ...:
                del owner[name]
            else:
                owner[name] = wrong
            yield [*path, name], wrong, again


def test_damaged_facts_are_an_error_of_nvcoll_or_can_be_shown(tmp_path, recorded):
    file, refused, shown = tmp_path / "r.json.gz", 0, 0
    for path, wrong, facts in damaged(recorded.facts):
        text = json.dumps({"schema": "nvcoll.recorded/2", "step": json.loads(recorded.step.to_json()), "facts": facts})
        file.write_bytes(gzip.compress(text.encode().replace(b"Infinity", b"1e999"), compresslevel=1))
        try:
            Recording.load(file)
        except nvcoll.InvalidArgument as error:
            assert "is a damaged recording (`" in str(error), (path, wrong)
            refused += 1
            continue
        ended = CliRunner().invoke(nvcoll.cli.command_line(), ["price", str(file)], prog_name="nvcoll")
        assert ended.exit_code in (0, 2) and isinstance(ended.exception, SystemExit | None), (
            path,
            wrong,
            ended.exception,
        )
        shown += 1
    assert refused > 200 and shown > 20


@pytest.mark.parametrize(
    "names", [("memory",), ("memory", "allocator"), ("memory", "allocator", "reserved"), ("issued",), ()]
)
def test_a_damaged_step_is_an_error_of_nvcoll(tmp_path, recorded, names):
    row = json.loads(recorded.step.to_json())
    owner = row["streams"]["ranks"]
    for name in (0, *names)[:-1]:
        owner = owner[name]
    del owner[(0, *names)[-1]]
    text = json.dumps({"schema": "nvcoll.recorded/2", "step": row, "facts": recorded.facts})
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(nvcoll.InvalidArgument, match=r"damaged recording \(`"):
        Recording.load(tmp_path / "r.json.gz")
