"""Fields of a configuration with their types, and what a file says as input of the planner.

Readers ask for a field by its names, and get a value or an error that says which field of which file is wrong. What a
reader assumes, or leaves out, becomes a note.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from nvcoll.errors import InvalidArgument

T = TypeVar("T")

LARGEST: Final = 2**31 - 1
"""The largest number that a field may have. Chosen: no dimension of a model or a job comes near."""

TABLES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("configurations.toml").read_text())
"""What readers know of frameworks."""


@dataclass(frozen=True)
class Configuration:
    """What a file says of a training step, in the words of the planner; what it does not say is None or absent."""

    model: str | dict[str, object] | None = None
    """The dimensions of the model, or the name of a model that is shipped."""
    layout: dict[str, object] = field(default_factory=dict)
    """The options of the layout that the file says."""
    software: str | None = None
    """The software that is shipped for the file's framework."""
    software_overrides: dict[str, object] = field(default_factory=dict)
    """Fields of the software that the file says otherwise."""
    notes: list[str] = field(default_factory=list)
    """What was assumed, and what was not read."""

    def words(self) -> dict[str, object]:
        """Returns arguments of `nvcoll.training.plan`; what the file does not say is absent."""
        found = {**self.layout}
        found |= {"software": self.software, "overrides": self.software_overrides} if self.software else {}
        return found | ({"model": self.model} if self.model else {})


@dataclass(frozen=True)
class Gpus:
    """The number of GPUs of a job: asked for, or of a machine, which counts where a file does not say the number."""

    asked: int | None = None
    machine: int | None = None

    def of(self, said: int | None = None) -> int | None:
        """Returns the number of GPUs, where a file says another or none."""
        return self.asked or said or self.machine


@dataclass(frozen=True)
class Fields:
    """Values by name, with the name of their file; a value of None counts as absent."""

    values: Mapping[str, object]
    where: str
    asked: set[str] = field(default_factory=set, compare=False)
    """The names that a reader asked for."""

    def first(self, *names: str) -> object:
        """Returns the value of the first name that is present, or None."""
        self.asked.update(names)
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def typed(self, kind: type[T], name: str, default: T) -> T:
        """Returns a value of a type, or the default if the field is absent.

        Raises:
            InvalidArgument: the field has another type.
        """
        value = self.first(name)
        if value is not None and not isinstance(value, kind):
            raise self.error(f"`{name}` is {shown(value)}, a {kind.__name__} was expected: correct it")
        return default if value is None else value

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Returns a whole number; a list that has one for each layer, all alike, counts as that.

        Args:
            names: the names of the field in files of different ages; the first that is present counts.
            default: the value if none is present. None: the field is required.
            least: the least value that is allowed.

        Raises:
            InvalidArgument: the field is absent and required, or not such a number.
        """
        value, name = self.first(*names), " or ".join(names[:3])
        if value is None and default is not None:
            return default
        if value is None:
            raise self.error(f"`{name}` is missing, a whole number was expected: add it")
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
            value = int(value)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
            remedy = "assign the variable in the file" if "$" in shown(value) else "correct it"
            if re.fullmatch(r"\$\{?\d+\}?", shown(value).strip("`'\"")):
                remedy = "pass the arguments of the script behind its name, in quotation marks"
            raise self.error(f"`{name}` is {shown(value)}, a number from {least} to {LARGEST} was expected: {remedy}")
        return value

    def part_of_one(self, name: str) -> float:
        """Returns a number from 0 to 1, 0 if it is absent."""
        text = str(self.first(name) or "0")
        if not re.fullmatch(r"0?\.[0-9]{1,12}|[01](\.0{0,12})?", text):
            raise self.error(f"`{name}` is {shown(text)}, a number from 0 to 1 was expected: correct it")
        return float(text)

    def sizes(self, rows: Mapping[str, Any]) -> dict[str, int]:
        """Returns numbers by the rows of a table: their names in the file, default and least value."""
        made = {}
        for name, row in rows.items():
            made[name] = self.number(*row["names"], default=row.get("default"), least=row.get("least", 1))
        return made

    def part(self, name: str) -> Fields:
        """Returns the fields of a part, none if the part is absent."""
        return Fields(self.typed(dict, name, {}), self.where)

    def chosen(self, what: str, value: object, table: Mapping[str, T]) -> T:
        """Returns what a table has for a value.

        Raises:
            InvalidArgument: the table does not have it.
        """
        if not isinstance(value, str) or value not in table:
            raise self.error(f"{what} is {shown(value)}, one of {', '.join(table)} was expected: choose one")
        return table[value]

    def not_read(self, without_effect: str, part: str = "") -> list[str]:
        """Returns a note on fields that no reader asked for.

        Args:
            without_effect: the names that change neither time nor memory of a step, as a regular expression.
            part: the name of the part that these fields are, with a dot behind.
        """
        said = [name for name, value in self.values.items() if value or value == ""]
        left = [name for name in said if name not in self.asked and not re.fullmatch(without_effect, name)]
        return [f"not read: {', '.join(f'`{part}{name}`' for name in left)}"] if left else []

    def error(self, reason: str) -> InvalidArgument:
        """Returns an error that names the file."""
        return InvalidArgument(f"{self.where}: {reason}")


def shown(value: object) -> str:
    """Returns a value of a file as a message shows it, short whatever it is."""
    if isinstance(value, str):
        return repr(value[:60])
    known = value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST)
    return repr(value) if known else f"a {type(value).__name__} that is no such value"
