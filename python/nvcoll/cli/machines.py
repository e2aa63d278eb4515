"""The options ``--on``, ``--gpu`` and ``--launch``, and the machines that they name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, cluster, fabrics, launches, networks, text_formats
from nvcoll._nvcoll import fabric as preset
from nvcoll.cli import completion

DEFAULT_MACHINE = "hgx-h100"

ALIASES = {
    "dgx-a100": "hgx-a100",
    "dgx-h100": "hgx-h100",
    "dgx-h200": "hgx-h200",
    "dgx-b200": "hgx-b200",
    "dgx-b300": "hgx-b300",
    "dgx-spark": "gb10-1",
    "nvl72": "gb200-nvl72",
}
"""Other names of machines whose links are those of a preset."""

_TAKES_GPU = {one.ending: one.takes_gpu for one in text_formats()}
"""The endings of names of files, and whether such a file may leave the model of its GPUs open."""

_CLUSTER = re.compile(r"(?P<file>.+)x(?P<nodes>[0-9]+)\+(?P<network>[^+]+)", re.IGNORECASE)


def beginning(incomplete: str) -> list[str]:
    """Returns the machines that begin so, the last of a list with commas; after a ``+`` the networks."""
    if "+" in incomplete.rpartition(",")[2]:
        return completion.last_of(incomplete, "+", (row.name for row in networks()))
    return completion.last_of(incomplete, ",", (*(one.name for one in fabrics()), *ALIASES))


On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        help=f"Machines, separated by commas: NAME, NAMExNODES+NETWORK, FILE. Default: {DEFAULT_MACHINE}.",
        show_default=False,
        autocompletion=beginning,
    ),
]
Gpu = Annotated[str | None, typer.Option(help="The GPU model, if a file (.txt or .xml) does not name it.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", help="Environment variable of NCCL, as NCCL_ALGO=Tree; repeatable.")
]
if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch

    Launch = _Launch
else:
    Launch = Annotated[
        str,
        typer.Option(help=f"The launch of calls: {', '.join(launches())}.", autocompletion=completion.among(launches)),
    ]


def _split(name: str) -> tuple[str, int | None, str]:
    """Returns node, nodes and network of a cluster with a file in its name; any other name comes back alone."""
    found = _CLUSTER.fullmatch(name)
    if found is not None and (Path(found["file"]).suffix in _TAKES_GPU or Path(found["network"]).suffix == ".toml"):
        return found["file"], int(found["nodes"]), found["network"]
    return name, None, ""


def takes_gpu(name: str) -> bool:
    """Says whether a machine is named by a file that may leave the model of its GPUs open."""
    return _TAKES_GPU.get(Path(_split(name)[0]).suffix, False)


def named(name: str, gpu: str | None = None) -> Fabric:
    """Returns the machine of a name, a file, or ``NODExNODES+NETWORK``; node and network may be files.

    Args:
        name: a preset or its alias, some GPUs of one (``hgx-h100[0-3]``), a cluster, or a file that ends in .toml,
            .txt or .xml. The file of a network ends in .toml.
        gpu: the model of the GPUs of a file that does not name it.

    Raises:
        InvalidArgument: no machine has this name, or `gpu` is missing or not wanted.
        OSError: the file cannot be read.
    """
    file, nodes, network = _split(name)
    if gpu is not None and not takes_gpu(name):
        raise InvalidArgument(f"--gpu is for files of nvidia-smi and NCCL: {name} names its GPUs itself")
    one = Fabric.from_file(file, gpu=gpu) if Path(file).suffix in _TAKES_GPU else preset(_without_alias(file))
    return one if nodes is None else cluster(one, nodes=nodes, network=network)


def _without_alias(name: str) -> str:
    """Replaces an alias by the name of its preset; what follows, as ``[0-3]`` or ``x2+ib-ndr-8``, stays."""
    match = re.fullmatch(r"(.*?)((?:\[.*\])?(?:x\d+(?:\+.*)?)?)", name, re.IGNORECASE)
    stem, rest = (match[1], match[2]) if match else (name, "")
    return f"{ALIASES.get(stem.lower(), stem)}{rest}"


def machines(names: str | Sequence[str] | None, gpu: str | None) -> list[Fabric]:
    """Returns the machines of ``--on``: lists with commas, of which several are one list. ``gpu`` is for files.

    Raises:
        InvalidArgument: there is none, or one that is no machine.
    """
    given = [DEFAULT_MACHINE] if names is None or names == [] else [names] if isinstance(names, str) else names
    # Commas in brackets belong to a name.
    split = [name.strip() for one in given for name in re.split(r",(?![^\[]*\])", one) if name.strip()]
    if not split:
        raise InvalidArgument("--on names no machine: pass one, as --on hgx-h100; nvcoll fabric lists them")
    if gpu is not None and not any(map(takes_gpu, split)):
        raise InvalidArgument("--gpu is for files of nvidia-smi and NCCL: --on names none")
    return [named(name, gpu if takes_gpu(name) else None) for name in split]


def one_machine(option: str, there_are: int) -> str:
    """Returns the error of an option whose output is of one machine."""
    return f"{option} takes one machine, and there are {there_are}: pass one"


def settings(given: Sequence[str]) -> dict[str, str]:
    """Reads ``--env NAME=VALUE``.

    Raises:
        InvalidArgument: one has no value, or a name occurs twice.
    """
    settings: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise InvalidArgument(f"--env {one} has no value: pass --env {one}=VALUE")
        if name in settings:
            raise InvalidArgument(f"--env {name} is given twice: pass it once")
        settings[name] = value
    return settings
