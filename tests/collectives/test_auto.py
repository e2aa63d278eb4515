"""`auto`: what it chooses, tables that are pinned, and the commands that explain and tune."""

import os
import re

import command_line
import numpy as np
import pytest

import nvcoll
from nvcoll._nvcoll import algorithms, auto_candidates, collectives, cost_model
from nvcoll.cli.bench import rounds, tune

WITH_DATA = [row.name for row in collectives() if row.name != "barrier"]


def shipped():
    return tune.table_text(nvcoll.Node(1).tuning)


def table_of(unit):
    """A table by which only the coefficients with this unit cost time."""
    table = nvcoll.Node(1).tuning
    for mode in cost_model().modes:
        table[mode] = {name: float(name.endswith(unit)) * 1000 for name in table[mode]}
    return tune.table_text(table)


@pytest.fixture
def pinned(tmp_path):
    """Returns a function that writes a table with more lines to a file."""

    def write(more="", text=None):
        file = tmp_path / "tuning.toml"
        file.write_text((shipped() if text is None else text) + more)
        return file

    return write


def run(*arguments, status=0, **environment):
    stdout, stderr = command_line.run(*arguments, status=status, env=os.environ | environment if environment else None)
    return stderr if status else stdout


def algorithm_of(node, count=1000):
    return node.plan("all_reduce", [np.ones(count, "f4") for _ in range(node.world_size)]).algorithm


# what is chosen


@pytest.mark.parametrize("collective", WITH_DATA)
def test_candidates_are_algorithms_of_the_same_bits(collective):
    orders = {row.name: row.order for row in algorithms() if row.collective == collective}
    assert auto_candidates(collective) == [name for name, order in orders.items() if order in ("rank", "none")]


def test_a_plan_says_what_auto_chose_and_it_is_what_is_estimated():
    node = nvcoll.Node(4)
    for count in (1, 1000, 1 << 20):
        chosen, why, estimates = node.estimates("all_reduce", count)
        assert algorithm_of(node, count) == chosen and why
        assert chosen in [name for name, *_ in estimates]
    named = node.plan("all_reduce", [np.ones(3, "f4") for _ in range(4)], algorithm="ring")
    assert named.algorithm == "ring"


# tables


def test_the_table_that_is_shipped_is_read_as_it_is_written(pinned):
    assert nvcoll.Node(4, tuning=pinned()).tuning == nvcoll.Node(4).tuning
    assert nvcoll.Node(4, tuning=str(pinned())).tuning == nvcoll.Node(4).tuning


def test_the_environment_names_a_table_and_an_argument_has_precedence(pinned, monkeypatch, tmp_path):
    monkeypatch.setenv("NVCOLL_TUNING", str(pinned(text=table_of("wait_ns"))))

    def chosen(**options):
        return nvcoll.Node(4, **options).estimates("all_reduce", 1000, path="staged").algorithm

    assert chosen() == "one_shot", "it has one wait less"
    other = tmp_path / "other.toml"
    other.write_text(table_of("_per_byte"))
    assert chosen(tuning=other) == "nvswitch", "it moves least"
    monkeypatch.setenv("NVCOLL_TUNING", str(tmp_path / "none.toml"))
    with pytest.raises(nvcoll.InvalidArgument, match=r"none\.toml: the tuning table cannot be read"):
        nvcoll.Node(4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no text `format`"),
        ("format = 'nvcoll.tuning/0'", "this version reads"),
        ("}", "the tuning table cannot be used"),
        ("\0", "the tuning table cannot be used"),
    ],
)
def test_a_file_that_is_no_table_is_refused(pinned, text, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        nvcoll.Node(4, tuning=pinned(text=text))


# explain


@pytest.mark.parametrize("options", [(), ("--path", "staged"), ("--by-rank",), ("--out-of-place",)])
def test_explain_shows_the_estimate_of_each_candidate(options):
    text = run("explain", "all_reduce", "-b", "1K", "-n", "3", *options)
    assert re.search(r"^auto chooses (\w+): ", text, re.MULTILINE)
    for name in auto_candidates("all_reduce"):
        assert re.search(rf"^{name} +\d\S* [KM]?i?B? +\d+ +\d+ +[\d.e+]+", text, re.MULTILINE), text
    assert text.count("<- auto") == 1
    assert "by name only, since their bits differ: ring, tree" in text


@pytest.mark.parametrize("collective", WITH_DATA)
@pytest.mark.parametrize("in_place", [True, False])
def test_every_collective_is_measured_in_every_mode(collective, in_place):
    node = nvcoll.Node(3)
    call = rounds.Call(collective, 10, 3, in_place=in_place, root=0)
    names = auto_candidates(collective)
    for mode in rounds.MODES:
        seconds = rounds.measure(node, mode, call, names, 2)
        assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(names, 2)


def test_small_calls_are_timed_in_a_row_and_large_ones_one_by_one():
    assert rounds.Call("all_reduce", 64, 8).row == rounds.ROW
    assert rounds.Call("all_reduce", rounds.ROW_BYTES // 4, 1).row == 1
    assert rounds.Call("all_reduce", rounds.ROW_BYTES // 4 // 8 // 3, 8).row == 3


def test_explain_of_a_root_that_is_not_0_and_of_many_ranks():
    text = run("explain", "scatter", "-b", "1K", "-n", "3", "--root", "2", "-d", "float64")
    assert "scatter 1008B float64, in place" in text.replace(" B ", "B ")
    text = run("explain", "all_gather", "-n", "65")
    assert "the default, since there are too many ranks to estimate" in text and "no estimates" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_produce",), "no collective is called `all_produce`"),
        (("all_reduce", "--root", "1"), "all_reduce has no root"),
        (("reduce", "--root", "8"), "--root is 8: the ranks are 0 to 7"),
        (("all_reduce", "-d", "float33"), "no dtype is called `float33`"),
        (("all_reduce", "--path", "tunnel"), "no path is called `tunnel`"),
        (("all_reduce", "--path", "staged", "--by-rank"), "--by-rank is for mapped ranks"),
    ],
)
def test_what_explain_cannot_do_is_one_line(arguments, message):
    assert message in run("explain", *arguments, status=2)


# tune


def test_tuning_writes_a_table_that_can_be_pinned(tmp_path, capsys):
    file = tmp_path / "mine.toml"
    tune.tune(4, file, all_ranks=(2,), all_sizes=("1K", "16K"), rounds=2)
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{mode} +\d+ times", printed, re.MULTILINE) for mode in cost_model().modes)
    node = nvcoll.Node(4, tuning=file)
    assert all(value >= 0 for mode in cost_model().modes for value in node.tuning[mode].values())
    assert node.estimates("all_gather", 4096).algorithm in auto_candidates("all_gather")


def test_non_negative_least_squares_finds_what_was_there():
    rng = np.random.default_rng(0)
    equations, truth = rng.random((40, 4)) * [1, 1e3, 1e6, 1e-3], np.array([2.0, 0.0, 1e-6, 5e3])
    found = tune.non_negative_least_squares(equations, equations @ truth)
    assert np.allclose(found, truth, rtol=1e-3, atol=1e-6)
    values = equations @ np.array([2.0, -1e-3, 1e-6, 5e3])
    found = tune.non_negative_least_squares(equations, values)
    assert found[1] == 0 and (found >= 0).all()
    assert tune.non_negative_least_squares(np.zeros((3, 2)), np.ones(3)).tolist() == [0, 0]


@pytest.mark.parametrize("count", [-1, 1 << 62, 1 << 64, 2.0])
def test_a_count_that_no_call_has_is_not_estimated(count):
    with pytest.raises(nvcoll.InvalidArgument, match=r"^count is .*: it must be a whole number"):
        nvcoll.Node(2).estimates("all_reduce", count)
