"""The parameters of an algorithm: declarations of its function, values of a user, and their spelling.

::

    def two_level(b, per_node=8)      declares per_node: a whole number; default 8
    two_level(per_node=4)             the only spelling: in Python, commands, names, texts and columns

A value is plain: a number, True, False, None, text, or a tuple of these. So a user can type it on the command line, and
it is printed without loss. The written form names every parameter. Two sets of values are equal if and only if their
written forms are equal. The annotation of a parameter determines the kind of its values, else the type of its default
does. A parameter without both takes any plain value.
"""

from __future__ import annotations

import ast
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nvcoll._nvcoll import InvalidArgument

KINDS = {
    "bool": (bool, "True or False"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "text"),
    "tuple": (tuple, "a tuple"),
    "list": (tuple, "a tuple"),
    "Sequence": (tuple, "a tuple"),
}
"""By the name of an annotation: the type of the values, and its name in messages."""

PLAIN = "a number, True, False, None, text in quotes, or a tuple of these"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function; ``default`` is inspect's ``empty`` if there is none."""

    name: str
    default: object
    type: type | None
    kind: str

    @classmethod
    def of(cls, function: str, declared: inspect.Parameter) -> Parameter:
        """Reads what a function declares.

        Raises:
            InvalidArgument: the parameter has no name of its own, or its default is not plain.
        """
        if declared.kind not in (declared.POSITIONAL_OR_KEYWORD, declared.KEYWORD_ONLY):
            raise InvalidArgument(
                f"`{declared}` of {function} cannot be given by name: declare each parameter by its own"
            )
        default = declared.default
        if default is not declared.empty:
            default = plain(default, f"the default of `{declared.name}` of {function}")
        note = declared.annotation
        if note is declared.empty:
            word = type(default).__name__
        else:
            word = (note if isinstance(note, str) else getattr(note, "__name__", "")).split("[")[0]
        if isinstance(note, str) and "|" in note:
            word = ""
        wanted, kind = KINDS.get(word, (None, "a plain value"))
        return cls(declared.name, float(default) if wanted is float and type(default) is int else default, wanted, kind)

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    def checked(self, value: object, function: str) -> object:
        """Returns a value in its plain form.

        Raises:
            InvalidArgument: it is of another kind.
        """
        found = plain(value, f"`{self.name}` of {function}")
        if self.type is float and type(found) is int:
            found = float(found)
        is_unset = found is None and self.default is None
        if self.type is not None and type(found) is not self.type and not is_unset:
            raise InvalidArgument(f"`{self.name}` of {function} is {written(found)}: it must be {self.kind}")
        return found

    def __str__(self) -> str:
        return self.name if self.is_required else f"{self.name}={written(self.default)}"


@dataclass(frozen=True)
class Parameters:
    """All parameters of an algorithm's function, in the order in which it declares them."""

    function: str
    declared: dict[str, Parameter]

    @classmethod
    def of(cls, write: Callable[..., object]) -> Parameters:
        """Reads the parameters after the first, which is the builder.

        Raises:
            InvalidArgument: it is no plain function, takes no builder, or declares what cannot be given by name.
        """
        if not inspect.isfunction(write):
            raise InvalidArgument(
                f"an algorithm is a function, found {type(write).__name__}: write @algorithm(collective)"
            )
        if (
            inspect.iscoroutinefunction(write)
            or inspect.isgeneratorfunction(write)
            or inspect.isasyncgenfunction(write)
        ):
            raise InvalidArgument(f"{write.__name__} is async or a generator: an algorithm is a plain function")
        declared = [*inspect.signature(write).parameters.values()]
        if not declared or declared[0].kind not in (declared[0].POSITIONAL_ONLY, declared[0].POSITIONAL_OR_KEYWORD):
            raise InvalidArgument(f"{write.__name__} takes no builder: its first parameter is a nvcoll.Builder")
        return cls(write.__name__, {each.name: Parameter.of(write.__name__, each) for each in declared[1:]})

    def checked(self, given: Mapping[str, object]) -> dict[str, object]:
        """Returns what was given in its plain form.

        Raises:
            InvalidArgument: no parameter has that name, or its value is of another kind.
        """
        for name in given:
            if name not in self.declared:
                raise InvalidArgument(f"{self.function} has no parameter `{name}`: {self._accepted()}")
        return {name: self.declared[name].checked(value, self.function) for name, value in given.items()}

    def complete(self, given: Mapping[str, object]) -> dict[str, object]:
        """Returns what the function is called with: what was given, and defaults.

        Raises:
            InvalidArgument: one without a default is missing.
        """
        for each in self.declared.values():
            if each.is_required and each.name not in given:
                raise InvalidArgument(f"{self.function} needs `{each.name}`: write {self.function}({each.name}=...)")
        return {name: given.get(name, each.default) for name, each in self.declared.items()}

    def call(self, given: Mapping[str, object]) -> str:
        """Writes the algorithm with all its parameters: ``two_level(per_node=4)``; ``ring`` if it has none."""
        if not self.declared:
            return self.function
        values = ((each, given.get(each.name, each.default)) for each in self.declared.values())
        return f"{self.function}({','.join(f'{each.name}={written(value)}' for each, value in values)})"

    def _accepted(self) -> str:
        names = ", ".join(map(str, self.declared.values()))
        return f"it takes {names}" if names else "it takes none"


def plain(value: object, what: str) -> object:
    """Returns a value as Python's own int, float, bool, str, None, or a tuple of these.

    Raises:
        InvalidArgument: it is none of them.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return operator.index(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, tuple | list | range):
        return tuple(plain(item, what) for item in value)
    raise InvalidArgument(f"{what} is {value!r:.60}: it must be {PLAIN}")


def written(value: object) -> str:
    """Writes a plain value as Python reads it, in one word of a schedule's text; ``?`` for one that is missing."""
    if value is inspect.Parameter.empty:
        return "?"
    if isinstance(value, tuple):
        return f"({','.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return repr(value).replace(" ", r"\x20").replace("#", r"\x23")  # which begins a comment there


def read(text: str) -> dict[str, object]:
    """Reads what stands in the parentheses of ``two_level(per_node=4)``.

    Raises:
        InvalidArgument: it is not ``name=value, ..`` with plain values.
    """
    wanted = f"`({text})` cannot be read: write (name=value, ..), each value {PLAIN}"
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args and isinstance(call.func, ast.Name)
        names = [keyword.arg for keyword in call.keywords]
        assert None not in names and len(names) == len(set(names))
        return {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise InvalidArgument(wanted) from None
