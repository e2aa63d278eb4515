"""Which functions of NVIDIA's libraries torch wants, and which of them the virtual GPU answers.

    python tools/generate/vgpu_symbols.py              # what the installed torch wants: answered, success, unknown
    python tools/generate/vgpu_symbols.py --write      # takes its symbols up, and renews the table and generated.rs
    python tools/generate/vgpu_symbols.py --torch DIR  # the same for the torch in another folder `site-packages`

The table `rust/nvcoll-vgpu/symbols.csv` is the union over all builds of torch and Triton on which `--write` ran, with
the builds that want each symbol. A symbol comes from three places: undefined symbols of the libraries of torch, names
in their constants that torch looks up while it runs, and calls in the C source of the launcher of Triton. Only files of
torch and Triton are read, none of NVIDIA.

A function is answered by hand if the sources of `nvcoll-vgpu` define it. `generated.rs` has one row for each
other symbol of the table: it answers "success" and is named at its first call.
"""

import argparse
import csv
import importlib.util
import re
import subprocess
import sys
import textwrap
from pathlib import Path

CRATE = Path(__file__).resolve().parents[2] / "rust" / "nvcoll-vgpu"
TABLE = CRATE / "symbols.csv"
GENERATED = CRATE / "src" / "generated.rs"

LIBRARY = re.compile(
    r"(?:__cuda|cuda|cublas|cudnn|nccl|cusparse|cusolver|cufft|curand|cupti|nvml|nvrtc|nvJitLink|nvshmem\w*|cu)[A-Z_]\w*"
)
"""What a symbol of NVIDIA's libraries starts with."""

LOOKED_UP = re.compile(
    rb"\0((?:nvml[A-Z]|cu(?:Ctx|Dev|Func|Get|Green|Init|Kernel|Launch|Link|Logs|Mem|Mod|Multi|Occ|Poi|Str|Tens))\w+)(?=\0)"
)
"""A constant that is the name of a function of the driver or of NVML, and nothing else."""

CALLED = re.compile(r"\b(cu(?:Ctx|Dev|Event|Func|Get|Init|Launch|Mem|Mod|Occ|Poi|Str|Tens)\w+)\s*\(")
"""A call of the driver in C."""


def undefined(library: Path) -> set[str]:
    """Returns the undefined symbols of a shared library, without their versions."""
    command = ["nm", "-D", "--undefined-only", str(library)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = (line.split()[-1].partition("@")[0] for line in out.splitlines() if line.strip())
    return {name for name in names if LIBRARY.fullmatch(name)}


def looked_up(library: Path) -> set[str]:
    """Returns the names of functions in the constants of a library."""
    return {name.decode() for name in LOOKED_UP.findall(library.read_bytes())}


def version(package: Path) -> str:
    """Returns the version of a package, as its `version.py` or its `__init__.py` says."""
    for name in ("version.py", "__init__.py"):
        path = package / name
        found = re.search(r"__version__ = '([^']+)'", path.read_text()) if path.exists() else None
        if found:
            return found[1]
    raise SystemExit(f"{package} does not say its version")


def wanted(site: Path) -> dict[str, set[str]]:
    """Returns what the torch and the Triton in a folder want, by their names with versions."""
    libraries = sorted((site / "torch" / "lib").glob("lib*.so"))
    if not libraries:
        raise SystemExit(f"{site} has no torch: pass --torch and a folder `site-packages` that has one")
    symbols = set().union(*map(undefined, libraries))
    names = [library for library in libraries if "cuda" in library.name or "nvrtc" in library.name]
    result = {f"torch {version(site / 'torch')}": symbols.union(*map(looked_up, names))}
    sources = [*(site / "triton" / "backends" / "nvidia").glob("*.c")]
    if sources:
        calls = {name for source in sources for name in CALLED.findall(source.read_text()) if name[-6:] != "Handle"}
        result[f"triton {version(site / 'triton')}"] = calls
    return result


def by_hand() -> set[str]:
    """Returns the names in the code of the crate, without comments, texts and generated rows."""
    names = set()
    for source in (CRATE / "src").rglob("*.rs"):
        if source != GENERATED:
            code = re.sub(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"', "", source.read_text())
            names |= {name for name in re.findall(r"\b\w+\b", code) if LIBRARY.fullmatch(name)}
    return names


def newest(name: str, names: set[str]) -> bool:
    """Returns whether one of `names` is `name` in a later version: the entry point of a name without one."""
    return any(f"{name}_v{number}" in names for number in (2, 3))


def read_table() -> dict[str, set[str]]:
    """Returns the builds that want each symbol of the table."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        return {row["symbol"]: set(row["wanted by"].split(", ")) for row in csv.DictReader(file)}


def taken_up(table: dict[str, set[str]], builds: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the table with what `builds` want in the place of what they wanted before."""
    kept = {symbol: by - builds.keys() for symbol, by in table.items()}
    for build, symbols in builds.items():
        for symbol in symbols:
            kept.setdefault(symbol, set()).add(build)
    return {symbol: kept[symbol] for symbol in sorted(kept) if kept[symbol]}


def table_text(table: dict[str, set[str]]) -> str:
    """Returns the table as CSV."""
    rows = [f'{symbol},"{", ".join(sorted(by))}"\n' for symbol, by in table.items()]
    return "symbol,wanted by\n" + "".join(rows)


def generic(table: dict[str, set[str]], answered: set[str]) -> list[str]:
    """Returns the symbols that say "success"."""
    return [symbol for symbol in table if symbol not in answered and not newest(symbol, answered)]


def generated_text(symbols: list[str]) -> str:
    """Returns `generated.rs`."""
    head = (
        "//! Functions that answer success and nothing else. "
        "`python tools/generate/vgpu_symbols.py --write` writes this file.\n"
        "use crate::unanswered::note_unanswered;\n\n"
        "macro_rules! succeed {\n"
        "    ($($name:ident)*) => { $(\n"
        "        #[no_mangle]\n"
        '        extern "C" fn $name() -> usize {\n'
        "            note_unanswered(const {\n"
        '                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\\0").as_bytes()) {\n'
        "                    Ok(name) => name,\n"
        '                    Err(_) => panic!("a name has no zero byte"),\n'
        "                }\n"
        "            });\n"
        "            0\n"
        "        }\n"
        "    )* };\n"
        "}\n\n"
        "succeed! {\n"
    )
    rows = textwrap.fill(
        " ".join(symbols), 120, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return head + rows + "\n}\n"


def say(table: dict[str, set[str]], builds: dict[str, set[str]], answered: set[str]) -> None:
    """Prints what the builds want and how it is answered."""
    for build, symbols in builds.items():
        say_success = set(generic({symbol: set() for symbol in sorted(symbols)}, answered))
        new = sorted(symbols - table.keys())
        print(f"{build} wants {len(symbols)}: {len(symbols - say_success)} by hand, {len(say_success)} say success")
        print(f"  not in the table: {' '.join(new) or 'none'}")
    unwanted = sorted(symbol for symbol in answered - table.keys() if not symbol.endswith(("_v2", "_v3")))
    print(f"by hand, wanted by no build of the table: {' '.join(unwanted) or 'none'}")
    print(f"success: {' '.join(generic(table, answered))}")


def main() -> None:
    """Prints, or takes up and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew symbols.csv and generated.rs")
    parser.add_argument("--torch", type=Path, metavar="DIR", help="the folder site-packages of a torch")
    arguments = parser.parse_args()
    spec = importlib.util.find_spec("torch")
    site = arguments.torch or (Path(spec.origin).parent.parent if spec and spec.origin else None)
    if site is None:
        sys.exit("torch is not installed: pass --torch")
    builds, answered = wanted(site), by_hand()
    table = taken_up(read_table(), builds) if arguments.write else read_table()
    if arguments.write:
        TABLE.write_text(table_text(table))
        GENERATED.write_text(generated_text(generic(table, answered)))
    say(table, builds, answered)


if __name__ == "__main__":
    main()
