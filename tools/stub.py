"""Writes the types of the extension, ``python/nvcoll/_nvcoll.pyi``, from the extension and ``tools/stub_types.pyi``.

::

    tools/stub_types.pyi                the types of everything but the collectives, by hand
    the extension's registries          the names of ops, algorithms, collectives, dtypes and launches, as literal types
    the extension's signatures          the methods that are collectives, by the table of types below
    the extension's docstrings          the docstring of each class, method and property

A method of one size, `nbytes: _Size`, gets an overload for several sizes, which returns a list.

Run it after every change of what Python sees, with the extension installed::

    python tools/stub.py            writes the file
    python tools/stub.py --check    says whether the file is what would be written; the status is 1 if it is not
"""

from __future__ import annotations

import argparse
import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvcoll import _nvcoll

ROOT = Path(__file__).resolve().parent.parent
TYPES = ROOT / "tools" / "stub_types.pyi"
STUB = ROOT / "python" / "nvcoll" / "_nvcoll.pyi"

HEAD = "# Written by tools/stub.py from tools/stub_types.pyi and the docstrings in rust/nvcoll-python: change those.\n"

ARGUMENTS = {
    "op": "_Op | None",
    "root": "int",
    "counts": "Sequence[int] | None",
    "recv_counts": "Sequence[int] | None",
    "algorithm": "_Algorithm | None",
    "path": "_Path | None",
    "timeout": "float | None",
}
"""The types of arguments of collectives, but for the arrays."""

COUNTS_OF_ALL_TO_ALL = {
    "Node": "Sequence[Sequence[int]] | None",
    "Communicator": "Sequence[int] | Sequence[Sequence[int]] | None",
}

RESULTS = {
    "Node": {
        **dict.fromkeys(("all_reduce", "broadcast", "scan", "exscan"), "_ArraysT"),
        **dict.fromkeys(("reduce", "gather"), "Any"),
        **dict.fromkeys(("reduce_scatter", "all_gather", "scatter", "all_to_all"), "list[Any]"),
    },
    "Communicator": dict.fromkeys(("reduce", "gather"), "_ArraysT | None"),
}
"""What the collectives of a class return without ``out``; ``_ArraysT``, the type of the arrays, unless it is said."""


def literal(names: list[str]) -> str:
    return f"Literal[{', '.join(map(repr, dict.fromkeys(names)))}]"


def names() -> Iterator[str]:
    """Yields the literal types of names that are fixed."""
    ops = [row.name for row in _nvcoll.ops() if row.name != "premul_sum"]
    yield f"_OpName: TypeAlias = {literal([*ops, 'mean'])}"
    yield f"_AlgorithmName: TypeAlias = {literal(['auto', *(row.name for row in _nvcoll.algorithms())])}"
    yield f"_Collective: TypeAlias = {literal([row.name for row in _nvcoll.collectives()])}"
    yield f"_Dtype: TypeAlias = {literal([row.name for row in _nvcoll.dtypes()])}"
    yield f"_Launch: TypeAlias = {literal(_nvcoll.launches())}"


def collective(owner: str, name: str) -> Iterator[str]:
    """Yields the overloads of a method that is a collective: without ``out``, with it, and with ``async_op``."""
    parameters = list(inspect.signature(getattr(getattr(_nvcoll, owner), name)).parameters.values())[1:]
    without = RESULTS[owner].get(name, "_ArraysT")
    is_async = any(one.name == "async_op" for one in parameters)
    for out, result in [("None = None", without), ("_OutT", "_OutT")] + [("Any = None", "Work")] * is_async:
        written, is_keyword = ["self"], False
        for at, one in enumerate(parameters):
            if one.kind is one.KEYWORD_ONLY and not is_keyword:
                written.append("*")
                is_keyword = True
            if one.name == "out":
                written.append(f"out: {out}")
            elif one.name == "async_op":
                written.append("async_op: " + ("Literal[True]" if result == "Work" else "Literal[False] = False"))
            elif at == 0:
                written.append(f"{one.name}: {'_ArraysT' if '_ArraysT' in result else 'Any'}")
            else:
                of_table = name == "all_to_all" and one.name == "counts"
                kind = COUNTS_OF_ALL_TO_ALL[owner] if of_table else ARGUMENTS[one.name]
                written.append(f"{one.name}: {kind} = {one.default!r}")
        yield f"@overload\ndef {name}({', '.join(written)}) -> {result}: ..."


def with_collectives(tree: ast.Module) -> None:
    """Adds the methods that are collectives to the classes that have them."""
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name in RESULTS:
            rows = [row.name for row in _nvcoll.collectives() if row.name not in ("barrier", "split")]
            owner.body += [
                one for name in rows for text in collective(owner.name, name) for one in ast.parse(text).body
            ]


def with_sizes(tree: ast.Module) -> None:
    """Gives the methods of one size an overload for several sizes, which returns a list."""
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            owner.body = [each for node in owner.body for each in overloads(node)]


def overloads(node: ast.stmt) -> list[ast.stmt]:
    text = ast.unparse(node)
    if not isinstance(node, ast.FunctionDef) or "nbytes: _Size" not in text:
        return [node]
    head, _, result = text.rpartition(" -> ")
    several = f"{head.replace('nbytes: _Size', 'nbytes: _Sizes')} -> list[{result.partition(':')[0]}]: ..."
    return ast.parse(f"@overload\n{text}\n@overload\n{several}").body


def with_docstrings(body: list[ast.stmt], owner: Any) -> None:
    """Gives every class and function its docstring, an overloaded one at its first signature."""
    seen: set[str] = set()
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name in seen or node.name.startswith("_"):
            continue
        seen.add(node.name)
        found = owner.__dict__.get(node.name)
        if isinstance(node, ast.ClassDef):
            with_docstrings(node.body, found)
        doc = inspect.getdoc(found)
        if doc is None or doc.startswith("Alias for field number"):
            continue
        text = ast.Expr(ast.Constant(doc))
        is_empty = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        node.body = [text] if is_empty else [text, *node.body]


def formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def stub() -> str:
    """Returns the text of the stub."""
    tree = ast.parse(TYPES.read_text())
    with_collectives(tree)
    with_sizes(tree)
    with_docstrings(tree.body, _nvcoll)
    at = next(at for at, node in enumerate(tree.body) if not isinstance(node, ast.ImportFrom | ast.Import))
    tree.body[at:at] = ast.parse("\n".join(names())).body
    return formatted(HEAD + ast.unparse(tree) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the file is what would be written")
    wanted = stub()
    if not parser.parse_args().check:
        STUB.write_text(wanted)
    elif STUB.read_text() != wanted:
        raise SystemExit(f"{STUB.relative_to(ROOT)} is not what the extension says: run python tools/stub.py")


if __name__ == "__main__":
    main()
