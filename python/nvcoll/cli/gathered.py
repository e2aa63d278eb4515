"""Parameters of commands whose fields are options: a command takes a few objects, and ``--help`` lists all options.

::

    @gathered
    def plan(model: str, how: PlanOptions, outputs: Outputs) -> None: ...

A field of a dataclass is an option as typer declares it, with the default of the field. A field of `PlanOptions` is one
if it has a `Help`; what is not given is absent.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import typer

from nvcoll.cli import completion


def gathered(command: Callable[..., None]) -> Callable[..., None]:
    """Makes a command whose parameters with fields are options, each field its own."""
    shown: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    for one in inspect.signature(command, eval_str=True).parameters.values():
        fields = list(_fields(one.annotation))
        if fields:
            groups[one.name] = one.annotation, [field.name for field in fields]
        shown += fields or [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def called(**given: object) -> None:
        for name, (made, fields) in groups.items():
            values = {field: given.pop(field) for field in fields}
            if is_typeddict(made):
                values = {field: value for field, value in values.items() if value is not None}
            given[name] = made(**values)
        command(**given)

    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


def _fields(kind: Any) -> Iterator[inspect.Parameter]:
    """Yields the fields of a class as parameters of typer."""
    if not (dataclasses.is_dataclass(kind) or is_typeddict(kind)):
        return
    hints = get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        defaults = {one.name: one.default for one in dataclasses.fields(kind)}
        yield from (_parameter(name, hints[name], default) for name, default in defaults.items())
        return
    from nvcoll.training.models import software  # commands without such parameters do not wait for it
    from nvcoll.training.options import Help

    completed = {"software": completion.among(software)}
    for name, hint in hints.items():
        if get_origin(hint) is Annotated and isinstance(help_ := hint.__metadata__[0], Help):
            option = typer.Option(help=help_.text, min=help_.least, autocompletion=completed.get(name))
            taken = hint.__origin__
            first = get_args(taken)[0] if isinstance(taken, UnionType) or "Union" in str(get_origin(taken)) else taken
            yield _parameter(name, Annotated[first | None, option], None)


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
