"""Files of the user: an algorithm in ``FILE.py:FUNCTION``, or a schedule as text, as ``nvcoll show`` prints it.

Parameters stand behind the function as in Python: ``FILE.py:two_level(per_node=4)``, which a shell wants in quotes.
An error in a user's file names the file and the line::

    mine.py:7: rank 4 is not in 0..4
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from nvcoll import Algorithm, Error, InvalidArgument, Schedule
from nvcoll._nvcoll import algorithms as registry
from nvcoll.authoring import parameters as parameters_of

SPEC = re.compile(r"(.*):([^:()]*)(?:\((.*)\))?", re.DOTALL)


def is_spec(name: str) -> bool:
    """Says whether a word names a file rather than a collective or an algorithm."""
    return ":" in name or "." in name or "/" in name


def is_text(name: str) -> bool:
    """Says whether a word names a text file rather than Python."""
    return is_spec(name) and ":" not in name and not name.endswith(".py")


def algorithm(spec: str) -> Algorithm:
    """Loads an algorithm from ``FILE.py:FUNCTION``.

    Raises:
        InvalidArgument: there is no such file, it cannot be run, it defines no such algorithm, or this has no such
            parameters.
    """
    file, function, parameters = _split(spec)
    if not Path(file).is_file():
        raise InvalidArgument(f"`{file}` is not a file: write FILE.py:FUNCTION")
    module = _module(file)
    found = getattr(module, function, None)
    if isinstance(found, Algorithm):
        return found if parameters is None else found(**parameters_of.read(parameters))
    names = [name for name, value in vars(module).items() if isinstance(value, Algorithm)]
    there = f"it has {', '.join(names)}" if names else "it has none: decorate one with @nvcoll.algorithm(collective)"
    if not function:
        raise InvalidArgument(f"`{spec}` names no algorithm: write {file}:FUNCTION; {there}")
    what = "has no" if found is None else f"has `{function}`, a {type(found).__name__}, but no"
    raise InvalidArgument(f"`{file}` {what} algorithm `{function}`: {there}")


def chosen(collective: str, names: Sequence[str], also: Sequence[str] = ()) -> dict[str, tuple[str, str | Algorithm]]:
    """Returns the algorithms that a user has named by the names of their columns: each as named, and itself.

    Args:
        collective: the collective of all.
        names: names of the registry, and specs of files. None: the whole registry.
        also: further names that are taken as they are.

    Raises:
        InvalidArgument: there is no such algorithm, or it is of another collective.
    """
    known = [row.name for row in registry() if row.collective == collective]
    found: dict[str, tuple[str, str | Algorithm]] = {}
    for name in names or known:
        if is_spec(name):
            mine = algorithm(name)
            if mine.collective != collective:
                raise InvalidArgument(f"`{name}` is an algorithm of {mine.collective}: pass one of {collective}")
            found[name if mine.name in (*known, *found) else mine.name] = name, mine
        elif name in (*known, *also):
            found[name] = name, name
        else:
            choice = f"choose from {', '.join(known)}, or write FILE.py:FUNCTION"
            raise InvalidArgument(f"no {collective} algorithm is called `{name}`: {choice}")
    return found


def schedule_of(spec: str, written: Algorithm, world_size: int, in_place: bool | None, root: int = 0) -> Schedule:
    """Builds the mapped schedule of an algorithm that was loaded from ``spec``.

    Raises:
        InvalidArgument: building failed, with the line of the file.
    """
    with errors_at_the_line(_split(spec)[0]):
        return written.schedule(world_size, in_place, root)


def read(file: str) -> Schedule:
    """Reads a schedule from a text file.

    Raises:
        InvalidArgument: it is not the text of a schedule.
        OSError: it cannot be read.
    """
    try:
        return Schedule.parse(Path(file).read_text())
    except (UnicodeDecodeError, Error) as error:
        raise InvalidArgument(f"{file}: {error}") from None


def _split(spec: str) -> tuple[str, str, str | None]:
    """Returns the file, the function, and what stands in parentheses behind it, or None."""
    match = SPEC.fullmatch(spec)
    return (match[1], match[2], match[3]) if match and not spec.endswith(".py") else (spec, "", None)


def _module(file: str) -> ModuleType:
    """Runs a file as Python does: its directory is searched first for what it imports."""
    path = Path(file).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"`{file}` is not a Python file: write FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent))
    with errors_at_the_line(file):
        spec.loader.exec_module(module)
    return module


@contextmanager
def errors_at_the_line(file: str) -> Iterator[None]:
    """Gives errors that pass through ``file`` its name and the line where they left it.

    Raises:
        InvalidArgument: anything was raised.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line(error, file)
        if isinstance(error, InvalidArgument) and line is None:
            raise
        where = file if line is None else f"{file}:{line}"
        raise InvalidArgument(f"{where}: {_message(error)}") from error


def _line(error: BaseException, file: str) -> int | None:
    """Returns the last line of ``file`` that an error passed, or at which it cannot be parsed."""
    path = Path(file).resolve()
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == path:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if Path(frame.filename).resolve() == path), None)


def _message(error: BaseException) -> str:
    """Returns what an error says, in one line, after its name if it is not one of ours."""
    try:
        words = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    except Exception:  # of the user's __str__
        words = "its text cannot be shown, since its __str__ raises"
    if isinstance(error, Error):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
