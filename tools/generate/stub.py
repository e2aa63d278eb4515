"""Writes the types of the extension, ``python/nvcoll/_nvcoll.pyi``, from the extension.

::

    what pyo3 wrote into the extension   classes, methods and functions with the types of their Rust signatures
    the extension's signatures           defaults; the methods that are collectives, by the table of types below
    the extension's registries           names of ops, algorithms, collectives, dtypes and launches as literal types
    the extension's named tuples         the rows of tables
    the extension's docstrings           the docstring of each class, method and property
    tools/generate/stub_types.pyi       names of types, exceptions, what Rust cannot say, such as overloads

A method of one size, `nbytes: _Size`, gets an overload for several sizes, which returns a list.

pyo3 writes each item as JSON into the extension (its feature `experimental-inspect`). This reads them from its file
since `maturin generate-stubs` finds none in a stripped extension.

Run it after every change of what Python sees, with the extension installed::

    python tools/generate/stub.py           writes the file
    python tools/generate/stub.py --check   says whether the file is what would be written; the status is 1 if it is not
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvcoll import _nvcoll

ROOT = Path(__file__).resolve().parents[2]
TYPES = Path(__file__).with_name("stub_types.pyi")
STUB = ROOT / "python" / "nvcoll" / "_nvcoll.pyi"

HEAD = "# Written by tools/generate/stub.py from the types and docstrings in rust/nvcoll-python: change those.\n"

SAID = {
    "_typeshed.SupportsGetItem[int, ": "Sequence[",
    "_typeshed.SupportsLenAndGetItem[": "Sequence[",
    "SupportsFloat | SupportsIndex": "float",
    "SupportsIndex": "int",
    "os.PathLike": "PathLike",
    "builtins.": "",
    "typing_extensions.": "",
}
"""Types as pyo3 says them, and as the stub does."""

BARE = {"dict": "dict[str, Any]", "tuple": "tuple[int, ...]"}
"""The dicts and tuples that the extension returns."""

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

COLLECTIVES = [row.name for row in _nvcoll.collectives() if row.name not in ("barrier", "split")]


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
    yield f"_Server: TypeAlias = {literal(_nvcoll.model_servers())}"


def items() -> list[dict[str, Any]]:
    """Returns the classes and functions that pyo3 wrote into the extension."""
    data, decoder, found = Path(_nvcoll.__file__).read_bytes(), json.JSONDecoder(), []
    for start in re.finditer(rb'\{"(arguments|decorators|doc|id|name)":', data):
        text = data[start.start() : data.index(b"\0", start.start())].decode(errors="replace")
        try:
            item, _ = decoder.raw_decode(text)
        except ValueError:
            continue
        if item.get("type") in ("class", "function") and item.keys() & {"id", "parent"} and "name" in item:
            found.append(item)
    return found


def expression(node: dict[str, Any], classes: dict[str, str]) -> str:
    """Returns a type, or another expression of pyo3, as Python."""
    inner = {
        key: expression(node[key], classes)
        for key in ("value", "slice", "left", "right")
        if isinstance(node.get(key), dict)
    }
    match node["type"]:
        case "name":
            return str(node["id"])
        case "id":
            return classes[node["id"]]
        case "attribute":
            return node["attr"] if inner["value"] in ("builtins", "typing") else f"{inner['value']}.{node['attr']}"
        case "binop":
            return f"{inner['left']} | {inner['right']}"
        case "subscript":
            return f"{inner['value']}[{inner['slice']}]"
        case "tuple" | "list":
            return ", ".join(expression(each, classes) for each in node["elts"])
        case _:
            return str(node.get("value"))


def said(node: dict[str, Any] | None, classes: dict[str, str]) -> str:
    """Returns a type as the stub says it."""
    return own_words(expression(node, classes)) if node else "None"


def own_words(text: str) -> str:
    for of_pyo3, own in SAID.items():
        text = text.replace(of_pyo3, own)
    return BARE.get(text, text)


def function(item: dict[str, Any], owner: Any, classes: dict[str, str]) -> str:
    """Returns the signature of a function or a method, with the defaults that its own signature has."""
    name, arguments = item["name"], item["arguments"]
    decorators = [expression(one, classes) for one in item.get("decorators", [])]
    own = owner if name == "__new__" else getattr(owner, name)
    defaults: dict[str, Any] = {}
    if not ({"property"} & {*decorators}) and (name == "__new__" or not name.startswith("__")):
        defaults = {one.name: one.default for one in inspect.signature(own).parameters.values()}

    def argument(one: dict[str, Any]) -> str:
        default = defaults.get(one["name"], inspect.Parameter.empty)
        kind = f": {said(one['annotation'], classes)}" if "annotation" in one else ""
        return one["name"] + kind + ("" if default is inspect.Parameter.empty else f" = {default!r}")

    positional = [argument(one) for one in arguments.get("posonlyargs", [])]
    if len(positional) > 1:
        positional.append("/")
    positional += [argument(one) for one in arguments.get("args", [])]
    if "vararg" in arguments:
        positional.append("*" + argument(arguments["vararg"]))
    elif arguments.get("kwonlyargs"):
        positional.append("*")
    positional += [argument(one) for one in arguments.get("kwonlyargs", [])]
    lines = [f"@{one}" for one in decorators]
    result = "Self" if name == "__new__" else said(item.get("returns"), classes)
    return "\n".join([*lines, f"def {name}({', '.join(positional)}) -> {result}: ..."])


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


def methods(
    owner: str, of_class: list[dict[str, Any]], by_hand: ast.ClassDef | None, classes: dict[str, str]
) -> Iterator[str]:
    """Yields the methods of a class: what is said by hand takes the place of what pyo3 says."""
    hand = by_hand.body if by_hand else []
    yield from map(ast.unparse, hand)
    known = {node.name for node in hand if isinstance(node, ast.FunctionDef)} | {"__repr__", "__str__", "__ne__"}
    for item in sorted(of_class, key=lambda item: str(item["name"])):
        name = item["name"]
        if owner in RESULTS and name in COLLECTIVES:
            yield from collective(owner, name)
        elif name not in known:
            yield function(item, getattr(_nvcoll, owner), classes)


def derived(by_hand: dict[str, ast.ClassDef]) -> Iterator[str]:
    """Yields the classes, the rows and the functions of the extension, by name."""
    found = items()
    classes = {item["id"]: item["name"] for item in found if item["type"] == "class"}
    public = {
        name: value for name, value in vars(_nvcoll).items() if inspect.isclass(value) and issubclass(value, tuple)
    }
    for name in sorted(public):
        fields = [f"{field}: {own_words(kind.__forward_arg__)}" for field, kind in public[name].__annotations__.items()]
        yield f"class {name}(NamedTuple):\n    " + "\n    ".join(fields)
    for item in sorted(found, key=lambda item: str(item["name"])):
        name = item["name"]
        if item["type"] == "function" and "parent" not in item:
            yield function(item, _nvcoll, classes)
        if item["type"] == "class" and hasattr(_nvcoll, name):
            of_class = [each for each in found if each.get("parent") == item["id"]]
            body = "\n".join(methods(name, of_class, by_hand.get(name), classes)) or "..."
            heads = [f"@{said(one, classes)}" for one in item["decorators"]]
            yield "\n".join([*heads, f"class {name}:\n    " + body.replace("\n", "\n    ")])


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
        if isinstance(node, ast.ClassDef):
            with_docstrings(node.body, getattr(owner, node.name))
        doc = inspect.getdoc(getattr(owner, node.name))
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
    of_items = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and not node.bases}
    tree.body = [node for node in tree.body if node not in of_items.values() or node is of_items.get("Error")]
    tree.body += ast.parse("\n".join(derived(of_items))).body
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
        raise SystemExit(f"{STUB.relative_to(ROOT)} is not what the extension says: run python tools/generate/stub.py")


if __name__ == "__main__":
    main()
