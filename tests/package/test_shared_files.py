"""Files beside the package: the GitHub Action and the workflow to copy, `llms.txt`, citation, the image."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORGE = "https://github.com/nvcoll/nvcoll/blob/main/"


def action():
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    return yaml.safe_load((ROOT / "action.yml").read_text())


def step_of(name, folder, **inputs):
    """Runs the commands of a step of the action as GitHub does; `python` and `nvcoll` write down their arguments."""
    (step,) = [step for step in action()["runs"]["steps"] if step["name"] == name]
    defaults = {key: row["default"] for key, row in action()["inputs"].items()}
    value = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
    given = {key: value.sub(lambda found: (defaults | inputs)[found[1]], text) for key, text in step["env"].items()}
    for command in ("python", "nvcoll"):
        file = folder / command
        file.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>" "$word"; done\nexit ${STATUS:-0}\n')
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | given | {"PATH": f"{folder}:{os.environ['PATH']}", "RUNNER_TEMP": str(folder)}
    environment |= {"GITHUB_ACTION_PATH": "/checkout of the action"}
    environment |= {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "STATUS": inputs.get("status", "0")}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_action_installs_what_it_is_given(tmp_path):
    assert "<nvcoll>" not in (said := step_of("Install nvcoll", tmp_path).stdout)  # a name that a stranger could take
    assert said == "<-m><pip><install></checkout of the action><pytest>"
    assert "<nvcoll==0.1.0>" in step_of("Install nvcoll", tmp_path, install="nvcoll==0.1.0").stdout


def test_the_action_runs_each_line_of_tests_as_one_argument(tmp_path):
    ended = step_of("Tests on several ranks", tmp_path, tests="tests/a\ntests/with space\n")
    assert ended.stdout == "<-m><pytest><--><tests/a><tests/with space>"


def test_the_action_passes_limits_and_arguments_to_a_dry_run_and_keeps_its_status(tmp_path):
    inputs = {"script": "train.py", "arguments": "--layers\n32\n", "machine": "8xH100"}
    ended = step_of("Script on virtual GPUs", tmp_path, **inputs)
    assert (ended.returncode, ended.stdout) == (0, "<dryrun><--on=8xH100><--><train.py><--layers><32>")
    limits = {"ranks": "16", "max-memory": "70", "max-step": "2"}
    ended = step_of("Script on virtual GPUs", tmp_path, **inputs, **limits, status="3")
    options = "<--on=8xH100><--world-size=16><--max-memory=70><--max-step=2>"
    assert (ended.returncode, ended.stdout) == (3, f"<dryrun>{options}<--><train.py><--layers><32>")
    assert options in (tmp_path / "summary.md").read_text()


def test_nothing_in_an_input_of_the_action_is_run(tmp_path):
    hostile = '"; touch ran; $(touch ran) `touch ran` ${HOME} *'
    for name in ("Install nvcoll", "Tests on several ranks", "Script on virtual GPUs"):
        inputs = dict.fromkeys(("install", "tests", "script", "arguments", "machine", "ranks", "max-step"), hostile)
        assert hostile in step_of(name, tmp_path, **inputs).stdout
    assert not (tmp_path / "ran").exists()
    assert not any("${{" in step["run"] for step in action()["runs"]["steps"])


def test_options_of_the_action_are_options_of_dryrun():
    words = [sys.executable, "-m", "nvcoll", "dryrun", "--help"]
    text = subprocess.run(
        words, capture_output=True, text=True, timeout=100, env=os.environ | {"COLUMNS": "200"}
    ).stdout
    (step,) = [step for step in action()["runs"]["steps"] if "dryrun" in step["run"]]
    used = set(re.findall(r'"(--[\w-]+)=', step["run"]))
    assert used == {"--on", "--world-size", "--max-memory", "--max-step"} and all(one in text for one in used)


def test_the_workflow_to_copy_gives_inputs_that_the_action_has():
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    workflow = yaml.safe_load((ROOT / "examples/ci/nvcoll.yml").read_text())
    steps = workflow["jobs"]["nvcoll"]["steps"]
    (used,) = [step["with"] for step in steps if step.get("uses", "").startswith("nvcoll/nvcoll@")]
    assert set(used) <= set(action()["inputs"])
    others = [step["uses"] for step in steps if "uses" in step and not step["uses"].startswith("nvcoll/")]
    assert others and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in others)


def test_links_of_llms_txt_lead_to_files_and_each_page_for_users_is_there():
    text = (ROOT / "llms.txt").read_text()
    assert text.startswith("# nvcoll\n\n> ")
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", text, re.MULTILINE)
    assert links and all(link.startswith(FORGE) for link in links)
    files = {link.removeprefix(FORGE) for link in links}
    assert [file for file in files if not (ROOT / file).is_file()] == []
    pages = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}
    left_out = {page for page in pages if page.startswith(("docs/maintainers/", "docs/reference/python/"))}
    assert pages - left_out - files == set()


def test_the_citation_has_the_version_and_the_licence_of_the_package():
    cargo = (ROOT / "Cargo.toml").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    for key in ("version", "license"):
        (value,) = re.findall(rf'^{key} = "(.+)"', cargo, re.MULTILINE)
        assert f"\n{key}: {value}\n" in citation


def test_the_image_runs_as_a_user_without_rights_and_holds_the_wheel_alone():
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
    assert len(stages) == 2 and "COPY" not in stages[1]
    assert re.search(r"^USER (?!root)\w+", stages[1], re.MULTILINE)


def test_nothing_says_to_install_nvcoll_from_a_package_index():
    files = [ROOT / "README.md", ROOT / "llms.txt", ROOT / "action.yml", ROOT / "mkdocs.yml"]
    files += [file for folder in ("docs", "examples", "python") for file in (ROOT / folder).rglob("*.*")]
    index = re.compile(r"pip install ['\"]?nvcoll\b(?! @)")
    texts = [(file, file.read_text()) for file in files if file.suffix in {".md", ".txt", ".yml", ".py", ".pyi"}]
    assert [str(file) for file, text in texts if index.search(text)] == []
