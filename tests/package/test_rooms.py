"""The rooms of the Python package: what its docstring says of them is true, and no file uses itself through others."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

import nvcoll
from nvcoll import dryrun

PACKAGES = ("nvcoll", "nvcoll_autoload", "nvcoll_pytest")

ROOT = Path(nvcoll.__file__).parent.parent

ROOMS = re.findall(r"^    (\w+)   ", nvcoll.__doc__, re.MULTILINE)


def modules():
    """All files of the packages, by the names of their modules."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def used_by(module, path, known):
    """The modules that a file imports anywhere, also in a function and for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports by a relative name"
            for one in node.names:
                if f"{node.module}.{one.name}" in known:
                    yield f"{node.module}.{one.name}"
                elif node.module in known and one.name != "_nvcoll":
                    yield node.module


KNOWN = modules()
USES = {module: sorted(set(used_by(module, path, KNOWN)) - {module}) for module, path in KNOWN.items()}


def room(module):
    """The room of a module; None for files outside of rooms."""
    package, *rest = module.split(".")
    return rest[0] if package == "nvcoll" and len(rest) and rest[0] in ROOMS else None


def test_every_folder_is_a_room_of_the_docstring():
    assert {path.parent.name for path in (ROOT / "nvcoll").glob("*/__init__.py")} == set(ROOMS)


def test_a_room_uses_only_rooms_above_it():
    wrong = [
        f"{module} uses {used}"
        for module, uses in USES.items()
        for used in uses
        if room(module) and room(used) and ROOMS.index(room(used)) > ROOMS.index(room(module))
    ]
    assert wrong == []


def test_rooms_below_the_public_names_do_not_use_them():
    public = ROOMS.index("testing")
    assert [
        one for one, uses in USES.items() if "nvcoll" in uses and room(one) and ROOMS.index(room(one)) < public
    ] == []


def test_no_file_uses_itself_through_others():
    try:
        list(graphlib.TopologicalSorter(USES).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def in_rooms_of_dry_runs():
    """Each module of the rooms of dry runs, by its room, with the modules that it uses."""
    for module, uses in USES.items():
        if module.startswith("nvcoll.dryrun."):
            yield module.split(".")[2], module, uses


def test_the_two_processes_of_a_dry_run_use_what_both_know_and_never_each_other():
    assert {room for room, *_ in in_rooms_of_dry_runs()} == set(
        re.findall(r"^    (\w+)   ", dryrun.__doc__, re.MULTILINE)
    )
    others = {"inside": ("parent",), "parent": ("inside",), "wire": ("inside", "parent")}
    wrong = [
        f"{module} uses {used}"
        for room, module, uses in in_rooms_of_dry_runs()
        for used in uses
        for other in others[room]
        if f"{used}.".startswith(f"nvcoll.dryrun.{other}.")
    ]
    assert wrong == []


def test_a_rank_of_a_dry_run_loads_nothing_of_nvcoll_but_what_both_processes_know_and_errors():
    known = ("nvcoll.dryrun.inside", "nvcoll.dryrun.wire", "nvcoll.errors", "nvcoll.ranks.bound")  # imports nothing
    assert [
        f"{module} uses {used}"
        for room, module, uses in in_rooms_of_dry_runs()
        for used in uses
        if room != "parent" and not used.startswith(known)
    ] == []
