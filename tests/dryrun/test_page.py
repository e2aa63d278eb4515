"""docs/train/dryrun.md: each command that it shows prints what stands there, with the torch that it names."""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dryrun_children import LIMIT_S, PATIENT, needs_torch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/train/dryrun.md").read_text()
SHOWN = re.findall(r"```\n\$ (nvcoll .*?)\n(.*?)```", PAGE, re.DOTALL)
OF_A_RUN = (
    (r"\d+ s with [\d.]+ GB", "N s with N GB"),
    (r"^judged .*", "judged"),
    (r"^(step \d+: clock) .*", r"\1"),
)
"""What differs between runs, machines and Pythons."""


def lines_of(text):
    for pattern, same in OF_A_RUN:
        text = re.sub(pattern, same, text, flags=re.MULTILINE)
    return [line for line in text.splitlines() if not line.startswith(("USDT:", "nvcoll: rank "))]


@PATIENT
@pytest.mark.skipif(sys.platform != "linux", reason="a dry run needs Linux")
def test_the_commands_of_the_page_print_what_stands_there(tmp_path):
    needs_torch()
    judged = re.search(r"^judged .* torch ([\d.]+)", PAGE, re.MULTILINE)
    if (version := importlib.metadata.version("torch").partition("+")[0]) != judged[1]:
        pytest.skip(f"the page was printed with torch {judged[1]}, and this is {version}")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "prof.py").write_text(re.search(r"```py\n# prof.py\n(.*?)```", PAGE, re.DOTALL)[1])
    assert len(SHOWN) == 3
    for command, shown in SHOWN:
        words = [sys.executable, "-m", *shlex.split(command)]
        how = {"cwd": tmp_path, "env": os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}, "timeout": LIMIT_S}
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
        found, wanted = lines_of(ended.stdout), lines_of(shown)
        assert ended.returncode == 0, ended.stdout
        if "..." in wanted:  # the page leaves lines out
            at = wanted.index("...")
            found = [*found[:at], "...", *(line for line in found[at:] if line in wanted[at:])]
        assert found == wanted, ended.stdout
