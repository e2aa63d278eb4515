"""The README is short, and its two commands are the gate's."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
GATE = README.parent / ".ci" / "run"
DRYRUN = README.parent / "docs" / "train" / "dryrun.md"


def test_the_readme_has_at_most_900_words():
    assert len(README.read_text().split()) <= 900


def test_the_gate_runs_the_two_commands_of_the_readme_as_they_stand():
    block = re.search(r"## Install and test\n.*?```\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    commands = block[1].splitlines()
    assert len(commands) == 2
    assert set(commands) <= set(GATE.read_text().splitlines())


def test_the_two_commands_stand_before_line_25():
    assert "&& pytest" in "\n".join(README.read_text().splitlines()[:24])


def test_the_dry_run_of_the_readme_is_part_of_the_one_that_its_page_shows():
    command, shown = re.search(r"```\n\$ (nvcoll dryrun .*)\n((?:.*\n)*?)```", README.read_text()).groups()
    (whole,) = re.findall(rf"```\n\$ {re.escape(command)}\n((?:.*\n)*?)```", DRYRUN.read_text())
    lines = [line for line in shown.splitlines() if line != "..."]
    assert len(lines) > 3 and lines == [line for line in whole.splitlines() if line in lines]
