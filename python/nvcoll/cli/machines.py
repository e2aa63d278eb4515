"""The options ``--on``, ``--gpu``, ``--launch``, ``--nccl-version`` and ``--env``, and the machines that they name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer

from nvcoll._nvcoll import (
    Fabric,
    InvalidArgument,
    StepPricer,
    fabric,
    gpus,
    launches,
    machine_names,
    machine_texts,
    model_servers,
    nccl_versions,
    networks,
)
from nvcoll._nvcoll import machines as machines_on
from nvcoll.cli import completion

DEFAULT_MACHINE = "hgx-h100"

ANY = "any"
"""What ``--on`` calls all machines that `any_machines` returns."""

SIZES = (1, 2, 4, 8)
"""The numbers of GPUs of one model that `any_machines` tries. Chosen."""


def beginning(incomplete: str) -> list[str]:
    """Returns the machines that begin so, the last of a list with commas; after a ``+`` the networks."""
    if "+" in incomplete.rpartition(",")[2]:
        return completion.last_of(incomplete, "+", (row.name for row in networks()))
    return completion.last_of(incomplete, ",", machine_names())


On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        help=f"Machines, separated by commas: NAME, NAMExNODES+NETWORK, 8xGPU, FILE. Default: {DEFAULT_MACHINE}.",
        show_default=False,
        autocompletion=beginning,
    ),
]
Gpu = Annotated[str | None, typer.Option(help="The GPU model, if a file (.txt or .xml) does not name it.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", help="Environment variable of NCCL, for example NCCL_ALGO=Tree; repeatable."),
]
NcclVersion = Annotated[
    str | None,
    typer.Option(
        "--nccl-version", help="Version of NCCL, for example 2.27.7.", autocompletion=completion.among(nccl_versions)
    ),
]
if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch, _Server
    from nvcoll.training.planning import Machine

    Launch = _Launch
    Server = _Server | None
else:
    Launch = Annotated[
        str,
        typer.Option(help=f"The launch of calls: {', '.join(launches())}.", autocompletion=completion.among(launches)),
    ]
    Server = Annotated[
        str | None,
        typer.Option(
            "--as",
            help=f"The all_reduce of a model server, with its own kernels: {', '.join(model_servers())}.",
            autocompletion=completion.among(model_servers),
        ),
    ]


def machines(names: Sequence[str] | None, gpu: str | None) -> list[Fabric]:
    """Returns the machines of ``--on``, by default `DEFAULT_MACHINE`; ``gpu`` is for files.

    Raises:
        InvalidArgument: there is none, or one that is no machine.
        OSError: a file cannot be read.
    """
    return machines_on(names or [DEFAULT_MACHINE], gpu=gpu)


def any_machines() -> list[Fabric]:
    """Returns the usual machine of each model of GPU with 1, 2, 4 and 8 GPUs, each once."""
    found: dict[str, Fabric] = {}
    for row in gpus():
        for size in SIZES:
            with suppress(InvalidArgument):  # not sold so
                one = fabric(f"{size}x{row.name}")
                found.setdefault(one.name, one)
    return list(found.values())


def taken(names: Sequence[str] | None, machines: Sequence[Fabric]) -> list[str]:
    """Says which machines were taken for names that people type."""
    typed = [text.lower().rpartition("/")[2] for name in names or [DEFAULT_MACHINE] for text in machine_texts(name)]
    others = [one for text, one in zip(typed, machines, strict=True) if one.name.lower() != text]
    return [f"the machine is {one.name}: {one.title}" for one in others]


def one_machine(option: str, there_are: int) -> str:
    """Returns the error of an option whose output is of one machine."""
    return f"{option} takes one machine, and there are {there_are}: pass one"


@dataclass(frozen=True)
class Conditions:
    """What of NCCL is not the default."""

    nccl_version: NcclVersion = None
    env: Env = None

    def machine(self, fabric: Fabric, gpus: int | None = None) -> Machine:
        """Returns a machine on which steps are priced."""
        from nvcoll.training.planning import Machine  # loads the planner

        return Machine(fabric, gpus, version=self.nccl_version, settings=self.settings)

    @cached_property
    def settings(self) -> dict[str, str]:
        """The environment of NCCL.

        Raises:
            InvalidArgument: an ``--env`` has no value, or a name occurs twice.
        """
        settings: dict[str, str] = {}
        for one in self.env or ():
            name, equals, value = one.partition("=")
            if not equals:
                raise InvalidArgument(f"--env {one} has no value: pass --env {one}=VALUE")
            if name in settings:
                raise InvalidArgument(f"--env {name} is given twice: pass it once")
            settings[name] = value
        return settings

    def check(self) -> None:
        """Refuses what NCCL has not, for a command that answers also without a prediction, which would refuse it.

        Raises:
            InvalidArgument: NCCL has no such setting, value or version.
        """
        any_machine = fabric("hgx-h100")
        StepPricer(any_machine, any_machine.world_size, settings=self.settings)
        any_machine.predict("all_reduce", 1, version=self.nccl_version)
