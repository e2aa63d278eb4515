"""Every Python program in the README runs."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
GATE = README.parent / ".ci" / "run"


def test_every_program_of_the_readme_runs_in_order():
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(programs) >= 3
    names: dict = {}
    for program in programs:
        exec(program, names)


def test_a_program_stands_before_line_25():
    assert "```python" in "\n".join(README.read_text().splitlines()[:24])


def test_the_gate_runs_the_two_commands_of_the_readme_as_they_stand():
    block = re.search(r"## Install and test\n.*?```\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    commands = block[1].splitlines()
    assert len(commands) == 2
    assert set(commands) <= set(GATE.read_text().splitlines())
