"""Writes Python's side of the virtual GPU, ``python/nvcoll/dryrun/wire/virtual_gpu.py``, from its library.

::

    kinds!, record!, exports! in rust/nvcoll-vgpu/src/{records,exports}.rs ─build─▶ nvcoll_vgpu_wire() ─▶ wire.py

Run it after every change of records or of functions for Python, with the library built::

    python tools/generate/wire.py           writes the file
    python tools/generate/wire.py --check   says whether the file is what would be written; the status is 1 if it is not
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
from pathlib import Path

from nvcoll.dryrun.parent.library import library

WIRE = Path(__file__).resolve().parents[2] / "python" / "nvcoll" / "dryrun" / "wire" / "virtual_gpu.py"

HEAD = '''"""The functions of the virtual GPU that Python calls, and the records of its log.

Written by tools/generate/wire.py from `records.rs` and `exports.rs` in rust/nvcoll-vgpu/src: change those.
"""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
'''

NUMPY = {"u16": '"<u2"', "u32": '"<u4"', "u64": '"<u8"', "[u64; 6]": '"<u8", 6'}
CTYPES = {
    "()": "None",
    "u32": "c_uint32",
    "u64": "c_uint64",
    "c_int": "c_int32",
    "*const c_char": "c_char_p",
    "*const LogRecord": "c_void_p",
    "*const u64": "c_void_p",
    "Out<u64>": "POINTER(c_uint64)",
    "List<u64>": "POINTER(c_uint64)",
}
"""Types of Rust as Python has them. A type that is missing is an error: add it."""


def rows() -> dict[str, list[list[str]]]:
    """Returns what the library tells of itself, by the first word of a line."""
    tell = ctypes.CDLL(str(library())).nvcoll_vgpu_wire
    tell.restype = ctypes.c_char_p
    found: dict[str, list[list[str]]] = {}
    for line in tell().decode().splitlines():
        what, *words = line.split("\t")
        found.setdefault(what, []).append(words)
    return found


def text() -> str:
    """Returns the text of the file."""
    told = rows()
    lines = [HEAD, *(f"{name} = 0x{int(value):x}" for name, value in told["constant"])]
    lines += [
        '"""A bit of `kind`: recorded while a CUDA graph was captured. Its launch appends copies without this bit."""',
        "",
    ]
    fields = (f'("{name}", {NUMPY[kind]})' for name, kind in told["field"])
    lines += [f"RECORD = np.dtype([{', '.join(fields)}])"]
    lines += ['"""One record of the log."""', "", "Records = NDArray[np.void]", '"""array (n,) of `RECORD`."""']
    lines += ["", "class Kind(IntEnum):"]
    lines += ['    """Kinds of records, and the content of `args`. If no name is listed, `name` is not used."""']
    for name, number, content in told["kind"]:
        lines += [f"    {re.sub('(?<!^)(?=[A-Z])', '_', name).upper()} = {number}", f'    """{content}"""']
    lines += ["FUNCTIONS: dict[str, tuple[type | None, ...]] = {  # the result, then the arguments"]
    for name, *types in told["function"]:
        if name != "nvcoll_vgpu_wire":
            signature = ", ".join(CTYPES[one] for one in types) + "," * (len(types) == 1)
            lines += [f'"{name.removeprefix("nvcoll_vgpu_")}": ({signature}),']
    return formatted("\n".join([*lines, "}", '"""The functions, whose names begin with `nvcoll_vgpu_`."""', ""]))


def formatted(source: str) -> str:
    """Returns source code as ruff formats it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(WIRE), "-"]
    return subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> int:
    """Writes or checks the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; the status is 1 if the file is stale")
    written = text()
    if not parser.parse_args().check:
        WIRE.write_text(written)
    elif WIRE.read_text() != written:
        print(f"{WIRE} is not what the library says: run python tools/generate/wire.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
