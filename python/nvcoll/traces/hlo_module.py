"""A module of HLO, from its text: computations of instructions, which have arrays as results and operands.

::

    ENTRY %main (x: f32[32,512]) -> f32[128,64] {                 a computation
      %x = f32[32,512]{1,0} parameter(0)                          name, arrays, opcode, operands
      ROOT %y = f32[128,64]{1,0} dot(%ag, %w), metadata={...}     attributes follow
    }

Only what `hlo` needs of an instruction is read; the rest of its line is kept as text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Final

from nvcoll.errors import InvalidArgument

BITS: Final = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
"""Bits of an element by type; other types have them in their name, as bf16, s32 and f8e4m3fn."""

_HEAD: Final = re.compile(r"^(?:ENTRY\s+)?%?(?P<name>[\w.\-]+)\s*\(.*->.*\{\s*$")
_INSTRUCTION: Final = re.compile(r"^\s*(?P<root>ROOT\s+)?%?(?P<name>[\w.\-]+)\s*=\s*(?P<rest>.+)$")
_ARRAY: Final = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_NAME: Final = re.compile(r"%([\w.\-]+)")


def whole_numbers(text: str) -> list[int]:
    """Returns the numbers of a text; a number of more than 18 digits is split."""
    return [int(one) for one in re.findall(r"\d{1,18}", text)]


@dataclass(frozen=True)
class Array:
    """Type and dimensions of an array."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> float:
        """Its bytes."""
        bits = BITS.get(self.dtype) or next(iter(whole_numbers(self.dtype)), 0)
        return self.elements * bits / 8

    @property
    def elements(self) -> int:
        """Its number of elements."""
        return prod(self.dims)


@dataclass(frozen=True)
class Instruction:
    """One line: name, arrays of the result, opcode, names of operands, and the rest of the line."""

    name: str
    result: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    rest: str
    line: int
    is_root: bool

    def numbers(self, key: str) -> list[int]:
        """Returns the numbers of an attribute as ``lhs_contracting_dims={1,2}``."""
        found = re.search(rf"\b{key}={{([\d,]*)}}", self.rest)
        return whole_numbers(found[1]) if found else []

    def called(self, key: str) -> list[str]:
        """Returns the computations that an attribute names."""
        found = re.search(rf"\b{key}=({{[^}}]*}}|%?[\w.\-]+)", self.rest)
        return [one.lstrip("%") for one in re.findall(r"%?[\w.\-]+", found[1])] if found else []

    @property
    def place(self) -> int:
        """The number of a parameter."""
        return int((re.match(r"\((\d{1,6})\)", self.rest) or ["", "0"])[1])

    @property
    def bytes(self) -> float:
        """The bytes of the result."""
        return sum(one.bytes for one in self.result)


class Computation(dict[str, Instruction]):
    """Instructions by name, in order."""

    @cached_property
    def readers(self) -> dict[str, list[Instruction]]:
        """The instructions that have an operand, by its name."""
        readers = defaultdict(list)
        for one in self.values():
            for name in one.operands:
                readers[name].append(one)
        return readers


@dataclass
class Module:
    """A module: its computations by name, the name of the entry, and the number of devices."""

    where: str
    computations: dict[str, Computation] = field(default_factory=dict)
    entry: str = ""
    devices: int = 1
    notes: dict[str, None] = field(default_factory=dict)

    def error(self, one: Instruction | int, reason: str) -> InvalidArgument:
        """Returns an error that names file and line."""
        line = one if isinstance(one, int) else one.line
        return InvalidArgument(f"{self.where}:{line}: {reason}")

    def computation(self, one: Instruction, key: str) -> Computation:
        """Returns the computation that an instruction calls."""
        names = one.called(key)
        if not names or names[0] not in self.computations:
            raise self.error(one, f"`{one.opcode}` has no computation `{key}`: pass the whole text of the module")
        return self.computations[names[0]]

    def operand(self, inside: Computation, one: Instruction, number: int) -> Instruction:
        """Returns the instruction that makes an operand."""
        if number >= len(one.operands) or one.operands[number] not in inside:
            raise self.error(one, f"`{one.opcode}` has no operand {number} that the text defines: pass the whole text")
        return inside[one.operands[number]]


def parsed(where: str, text: str) -> Module:
    module, inside = Module(where), None
    header = text.split("\n", 1)[0]
    for key in ("num_partitions", "replica_count"):
        found = re.search(rf"\b{key}=(\d{{1,7}})\b", header)
        module.devices *= int(found[1]) if found else 1
    for line, words in enumerate(text.splitlines(), 1):
        words = re.sub(r"/\*.*?\*/", "", words)
        if head := _HEAD.match(words):
            inside = module.computations.setdefault(head["name"], Computation())
            module.entry = head["name"] if words.startswith("ENTRY") else module.entry
        elif words.startswith("}"):
            inside = None
        elif inside is not None and (found := _INSTRUCTION.match(words)):
            one = _instruction(module, line, found)
            inside[one.name] = one
    if not module.entry or inside is not None:
        raise InvalidArgument(f"{where} is cut: it has no complete ENTRY computation; pass the whole as_text()")
    return module


def _instruction(module: Module, line: int, found: re.Match[str]) -> Instruction:
    rest = found["rest"]
    kind, rest = _bracketed(rest) if rest.startswith("(") else rest.partition(" ")[::2]
    call = re.match(r"\s*([a-z][\w\-]*)\(", rest)
    if call is None:
        raise module.error(line, f"`{found['rest'][:60]}` is no instruction: pass the text as XLA writes it")
    inner, after = _bracketed(rest[call.end() - 1 :])
    arrays = []
    for dtype, dims in _ARRAY.findall(kind):
        sizes = whole_numbers(dims)
        if any(one >= 2**40 for one in sizes) or len(sizes) > 32:
            raise module.error(line, f"`{kind[:60]}` is no array that fits a computer: correct its dimensions")
        arrays.append(Array(dtype, tuple(sizes)))
    return Instruction(
        found["name"], tuple(arrays), call[1], tuple(_NAME.findall(inner)), inner + after, line, bool(found["root"])
    )


def _bracketed(text: str) -> tuple[str, str]:
    """Splits a text that begins with a bracket after the matching closing bracket."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[: at + 1], text[at + 1 :]
    return text, ""
