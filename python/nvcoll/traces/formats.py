"""The formats of traces and recordings, in one table. The content of a file decides its format, never its name.

=========================  =======================================================================================
a recording                of ``nvcoll dryrun --save``
a step                     JSON of ``nvcoll.step/1``, planned or recorded
a trace of torch.profiler  Kineto's JSON, one file per rank
an execution trace         Chakra's protobuf, one file per rank
a compiled function        text of HLO, from JAX
=========================  =======================================================================================

Any of them may be compressed by gzip. A folder stands for the files in it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nvcoll._nvcoll import WorkStep
from nvcoll.errors import InvalidArgument
from nvcoll.traces import chakra, hlo, kineto
from nvcoll.traces.program import Trace

LARGEST: Final = 1 << 31
"""The most bytes of a file, unpacked. Chosen: a trace of a few steps has some hundred MB."""

GPU: Final = "h100-sxm"
"""The model of GPU if neither file nor caller names one. Chosen."""


def read(path: str | PathLike[str], *paths: str | PathLike[str], gpu: str | None = None) -> list[WorkStep]:
    """Returns the steps of a file, or of the files of several ranks. Arguments and errors are as in `opened`."""
    return opened([path, *paths], gpu=gpu).steps


def opened(paths: Sequence[str | PathLike[str]], *, gpu: str | None = None, step: int | None = None) -> Trace:
    """Returns the steps of some files, and assumptions.

    Args:
        paths: a file, or one of each rank, or a folder of such files.
        gpu: the model of GPU, as ``a100-sxm``, if the files name none.
        step: the number of the step in a trace of torch.profiler. Default: the step of median time.

    Raises:
        InvalidArgument: no format recognises a file, the files are of several formats, or a file contradicts its
            format.
        OSError: a file cannot be read.
    """
    files = [(str(file), _unpacked(file)) for file in _files(paths)]
    found = [(where, *_recognised(where, data)) for where, data in files]
    formats = {name for _, name, _ in found} - {"groups"}
    if len(formats) != 1:
        what = " and ".join(sorted(formats)) or "nothing"
        raise InvalidArgument(f"{', '.join(map(str, paths))} have {what}: pass files of one format")
    rows = [(where, content) for where, name, content in found if name != "groups"]
    groups = next((content for _, name, content in found if name == "groups"), None)
    return READERS[formats.pop()](rows, gpu or GPU, step, groups)


def is_recording(file: str | PathLike[str]) -> bool:
    """Says whether a file begins as ``nvcoll dryrun --save`` writes it."""
    try:
        with gzip.open(file) as stream:
            return b'"nvcoll.recorded/' in stream.read(64)
    except (OSError, EOFError, zlib.error):
        return False


def _files(paths: Sequence[str | PathLike[str]]) -> list[Path]:
    """Returns the files; files of a folder in the order of their names."""
    found: list[Path] = []
    for one in map(Path, paths):
        found += sorted(file for file in one.iterdir() if file.is_file()) if one.is_dir() else [one]
    if not found:
        raise InvalidArgument(f"{', '.join(map(str, paths)) or 'nothing'} has no files: pass a trace or a recording")
    return found


def _unpacked(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            data = (gzip.GzipFile(fileobj=stream) if packed else stream).read(LARGEST + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise InvalidArgument(f"{file} cannot be unpacked ({error}): pass a trace or a recording") from error
    if not data:
        raise InvalidArgument(f"{file} is empty: pass a trace or a recording")
    if len(data) > LARGEST:
        raise InvalidArgument(f"{file} has more than {LARGEST} bytes unpacked: trace fewer steps")
    return data


def _recognised(where: str, data: bytes) -> tuple[str, Any]:
    """Returns the name of the format of a file, and its content in the form that the reader expects.

    Raises:
        InvalidArgument: no format recognises it.
    """
    if chakra.is_read(data):
        return "chakra", data
    try:
        text = data.decode()
        if hlo.is_read(text):
            return "hlo", text
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = f" ({str(error)[:80]})" if data.lstrip()[:1] in (b"{", b"[") else ""
        raise InvalidArgument(f"{where} has none of the formats that are read{reason}: {'; '.join(TITLES)}") from error
    schema = str(document.get("schema")) if isinstance(document, dict) else ""
    if schema.startswith("nvcoll.recorded/") and isinstance(document.get("step"), dict):
        return "recording", document["step"]
    if schema.startswith("nvcoll.step/"):
        return "step", document
    if kineto.is_read(document):
        return "kineto", document
    if isinstance(document, dict) and document and all(_is_ranks(ranks) for ranks in document.values()):
        return "groups", document
    raise InvalidArgument(f"{where} has none of the formats that are read: {'; '.join(TITLES)}")


def _is_ranks(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int and 0 <= one < 2**20 for one in value)


TITLES: Final = (
    "a recording of nvcoll dryrun",
    "JSON of a step",
    "a trace of torch.profiler",
    "an execution trace of Chakra",
    "text of HLO",
)
"""The formats in words, for errors."""

Reader = Callable[[Sequence[tuple[str, Any]], str, int | None, Mapping[str, Sequence[int]] | None], Trace]


def _step(files: Sequence[tuple[str, object]], _gpu: str, _number: int | None, _groups: object) -> Trace:
    return Trace([WorkStep.from_json(json.dumps(row)) for _, row in files])


def _hlo(files: Sequence[tuple[str, str]], gpu: str, _number: int | None, _groups: object) -> Trace:
    traces = [hlo.read(where, text, gpu) for where, text in files]
    return Trace([one for each in traces for one in each.steps], [note for each in traces for note in each.notes])


READERS: Final[Mapping[str, Reader]] = {
    "recording": _step,
    "step": _step,
    "kineto": lambda files, gpu, number, _groups: kineto.read(files, gpu, number),
    "chakra": lambda files, gpu, _number, groups: chakra.read(files, gpu, groups),
    "hlo": _hlo,
}
"""The reader of each format."""
