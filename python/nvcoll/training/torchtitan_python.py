"""Reads a job of torchtitan in Python, as its `config_registry.py` files have them since April 2026. Nothing is run.

A function is read as its syntax tree: calls make parts by their keywords, assignments change fields of parts, calls of
other functions of the file are followed. The result has the names of the TOML. Not read: statements of other kinds.
"""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nvcoll.errors import InvalidArgument
from nvcoll.training import shell
from nvcoll.training.fields import Fields

NAME: Final = re.compile(r"(.*config_registry)(\.py)?:(\w+)", re.DOTALL)
MOST: Final = 64
"""The calls of functions of the file, at most. Chosen: torchtitan has two in a job."""
LONGEST: Final = 1 << 18
"""The characters of a file that are read. Chosen: torchtitan's have some 30,000."""
CONVERTERS: Final = re.compile(r"\w+Converter")
RECOMPUTES: Final = {"FullAC": "full", "SelectiveAC": "selective"}


def is_function(name: str) -> bool:
    """Says whether a name is of a function that makes a job: in a file, or in a module behind points."""
    return NAME.fullmatch(name) is not None


def values(name: str) -> tuple[dict[str, object], list[str]]:
    """Returns what a function says, by the names of the TOML, and notes.

    Raises:
        InvalidArgument: the file or the function is not there, or it is no Python.
    """
    fields = Fields({}, name)
    file = _file(name)
    if file is None or not file.is_file():
        raise fields.error(
            "its module is not there: install torchtitan, or pass a file, as config_registry.py:llama3_8b"
        )
    try:
        tree = ast.parse(file.read_text(errors="replace")[:LONGEST])
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        reading = _Reading(functions)
        job = reading.returned(fields.chosen("the function", name.rpartition(":")[2], {one: one for one in functions}))
        if isinstance(job, dict) and isinstance(job.get("model_spec"), dict):
            return _named(job, file.absolute().parent.name), reading.notes
    except InvalidArgument:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise fields.error("the file is no Python of a job: correct it") from None
    raise fields.error("the function returns no job of `Trainer.Config` with a `model_spec`: choose another")


def _file(name: str) -> Path | None:
    match = NAME.fullmatch(name)
    module, suffix = (match[1], match[2]) if match else ("", None)
    if suffix:
        return Path(module + suffix)
    package, _, rest = module.partition(".")
    found = find_spec(package) if package.isidentifier() else None  # of a package alone: imports nothing
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places)), *rest.split(".")).with_suffix(".py") if places else None


def _named(job: dict[str, object], family: str) -> dict[str, object]:
    """Returns the parts of a job by their names in TOML."""
    parts = {part: value for part in ("training", "parallelism", "compile") if isinstance(value := job.get(part), dict)}
    training, spec = parts.get("training", {}), Fields(job, "").part("model_spec").values
    tokens, sequence = (
        training.get("num_tokens_per_microbatch_per_dp_rank", 16384),
        training.get("max_context_length", 2048),
    )
    total, batches = (
        training.get("num_tokens_per_train_step"),
        parts.get("parallelism", {}).get("num_pp_microbatches", 1),
    )
    read = {"seq_len": sequence}
    if all(isinstance(one, int) and one > 0 for one in (tokens, sequence, batches)):
        each = max(1, tokens // sequence)
        read |= {"local_batch_size": each * batches, "pipeline_parallel_microbatch_size": each}
        read |= {"global_batch_size": total // sequence} if isinstance(total, int) and total > 0 else {}
    kind = str(Fields(job, "").part("activation_checkpoint").first("") or "SelectiveAC").partition(".")[0]
    converters = CONVERTERS.findall(str(spec.get("converters", "")))
    muon = "Muon" if "Muon" in str(job.get("optimizer", "")) else ""
    names = ("num_tokens_per_microbatch_per_dp_rank", "max_context_length", "num_tokens_per_train_step", "")
    left = {part: {name: value for name, value in one.items() if name not in names} for part, one in parts.items()}
    more = {name: value for name, value in spec.items() if name not in ("", "0")}
    return (
        {name: True for name in job.keys() - {"", "model_spec"}}
        | left
        | {
            "model": {**more, "name": family, "flavor": str(spec.get("0", "")), "converters": converters},
            "training": {**left.get("training", {}), **read},
            "activation_checkpoint": {"mode": RECOMPUTES.get(kind, "none"), "selective_ac_option": "op"},
            "optimizer": {"name": muon},
        }
    )


class _Reading:
    """Functions of a file that are being read."""

    def __init__(self, functions: dict[str, ast.FunctionDef]) -> None:
        self.functions = functions
        self.notes: list[str] = []
        self._calls = 0

    def returned(self, name: str) -> object:
        """Returns what a function returns."""
        known: dict[str, object] = {}
        self._calls += 1
        for node in self.functions[name].body if self._calls <= MOST else []:
            if isinstance(node, ast.Return) and node.value:
                return self._value(node.value, known)
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], self._value(node.value, known), known)
            elif not isinstance(node, ast.Assert | ast.Import | ast.ImportFrom) and not _is_text(node):
                self.notes.append(f"not read: line {node.lineno} of `{name}`")
        return None

    def _assign(self, target: ast.expr, value: object, known: dict[str, object]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = value
        elif isinstance(target, ast.Attribute):
            part = self._value(target.value, known)
            if isinstance(part, dict):
                part[target.attr] = value
            elif isinstance(target.value, ast.Attribute):  # a part with the defaults of torchtitan
                self._assign(target.value, {target.attr: value}, known)

    def _value(self, node: ast.expr, known: dict[str, object]) -> object:
        """Returns a value: of a call a mapping of its keywords, "" for what is called, "0" for the first argument."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Attribute):
            part = self._value(node.value, known)
            return part.get(node.attr) if isinstance(part, dict) else None
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(one, known) for one in node.elts]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in self.functions:
                return self.returned(called)
            named = {one.arg: self._value(one.value, known) for one in node.keywords if one.arg}
            first = {"0": self._value(node.args[0], known)} if node.args else {}
            return {"": called, **first, **named}
        return _number(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _number(node: ast.expr) -> int | None:
    """Returns the result of whole numbers, None if it is another expression."""
    try:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -shell.result(node.operand)
        return shell.result(node)
    except (KeyError, ZeroDivisionError):
        return None
