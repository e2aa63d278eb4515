"""The current line: the nearest frame outside torch and the standard library.

The current line may be in a framework ("transformers/models/llama/modeling_llama.py:243 forward"); the line of the
script is the nearest frame outside installed packages. Compiled code has no lines: the line of its call counts.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from itertools import islice
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType, TracebackType

import torch

from nvcoll.dryrun.inside.private import History

NO_LINE = 0
SITE = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(torch.__file__).parents[1])})
"""Folders of installed packages."""
TOOLS = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parents[2]}/")
"""Packages whose frames are never a line."""
TRAINING = ("/torch/autograd/graph.py", "/torch/optim/optimizer.py")
"""Files that train without gradients: backward passes, and optimizers, which may multiply matrices (Muon)."""
MODULES = ("/torch/nn/modules/module.py",)
"""The file that calls `forward` of modules."""
OTHER = ("",)
"""All other files."""
COMPILERS = ("triton/", "/inductor/", "torchinductor", "inductor_cache/", "_distutils_hack/")


class Lines:
    """Lines by number, in the order of their first use. Row 0 is "no line".

    Args:
        script: the path of the script, or "" for a module.
    """

    def __init__(self, script: str) -> None:
        self.texts = [""]
        self.training = threading.main_thread().ident or 0
        """The thread that trains: the main thread, or that which has called the optimizer."""
        self._lock = threading.Lock()
        self._home = str(Path(script).resolve().parent) + "/" if script else str(Path.cwd()) + "/"
        self._standard = sysconfig.get_path("stdlib") + "/"
        self._parts: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, tuple[str, bool]] = {}
        self._rows: dict[tuple[str, str, int], int] = {}
        self._by_text: dict[str, int] = {"": 0}

    def here(self, depth: int = 1) -> int:
        """Returns the number of this thread's current line, or 0."""
        return self._of(sys._getframe(depth))

    def train_here(self) -> None:
        """Makes this thread the one that trains."""
        self.training = threading.get_ident()

    def of_training(self) -> int:
        """Returns the number of the current line of the thread that trains: for threads of autograd, `backward()`."""
        return self._of(sys._current_frames().get(self.training))

    def of_script(self) -> str:
        """Returns the current line of the script in this thread, else in the thread that trains, or ""."""
        for frame in (sys._getframe(1), sys._current_frames().get(self.training)):
            found = self._of(frame, of_script=True) or self._of(frame)
            if found:
                return self.texts[found]
        return ""

    def place(self) -> str:
        """Returns the current line; if it is a package's, also the line of the script that led there."""
        here, script = self.texts[self.here()], self.of_script()
        return script if here in ("", script) else f"{here}, from {script}"

    def without_gradients(self, trains: bool) -> int:
        """Returns the line that calls the outermost module of this thread, whose gradients are off; 0: in training.

        Of modules that `generate` calls it is the line of `generate`. While the script trains, a function with a
        backward of its own belongs to training, as a reentrant checkpoint: it runs without gradients.
        """
        frame: FrameType | None = sys._getframe(1)
        outermost = frame
        while frame is not None:
            code = frame.f_code
            part = self._parts.get(code.co_filename) or self._part(code.co_filename)
            if part is TRAINING or (trains and code.co_name == "forward" and _has_own_backward(frame)):
                return NO_LINE
            if part is MODULES or code.co_name == "generate":
                outermost = frame
            frame = frame.f_back
        return self._of(outermost)

    def _part(self, file: str) -> tuple[str, ...]:
        part = next((part for part in (TRAINING, MODULES) if file.endswith(part)), OTHER)
        self._parts[file] = part
        return part

    def is_within(self, files: tuple[str, ...], limit: int = 16) -> bool:
        """Says whether one of the innermost frames of this thread is of a file whose name ends so."""
        frames = islice(walk_stack(sys._getframe(1)), limit)
        return any(frame.f_code.co_filename.endswith(files) for frame, _ in frames)

    def of_trace(self, trace: TracebackType | None) -> str:
        """Returns the innermost line of the script in a traceback, or ""."""
        found = ""
        for frame, number in walk_tb(trace):
            name, is_script = self._name(frame.f_code)
            if is_script:
                found = f"{name}:{number} {frame.f_code.co_name}"
        return found

    def is_raised_beside(self, place: str, trace: TracebackType | None) -> bool:
        """Says whether an error was raised in the file and function of a place, and not by torch."""
        frames = [frame.f_code for frame, _ in walk_tb(trace)]
        name = self._name(frames[-1])[0] if frames else ""
        return bool(name) and place.startswith(f"{name}:") and place.split(", ")[0].endswith(f" {frames[-1].co_name}")

    def of_frames(self, frames: History) -> str:
        """Returns the innermost line of the script among frames of the allocator's history, or ""."""
        for frame in frames:
            name, is_script = self._shown(frame["filename"]) or ("", False)
            if is_script:
                return f"{name}:{frame['line']} {frame['name']}"
        return ""

    def stack_here(self, limit: int = 8) -> tuple[str, ...]:
        """Returns the lines on the stack of this thread, then of that which trains, innermost first."""
        threads = [sys._getframe(1)]
        if threading.get_ident() != self.training:
            threads.append(sys._current_frames()[self.training])
        frames = ((frame.f_code, number) for thread in threads for frame, number in walk_stack(thread))
        rows = (f"{name}:{number} {code.co_name}" for code, number in frames if (name := self._name(code)[0]))
        return tuple(islice(rows, limit))

    def _of(self, frame: FrameType | None, of_script: bool = False) -> int:
        names = self._names
        while frame is not None:
            code = frame.f_code
            name, is_script = names.get(code.co_filename) or self._name(code)
            if name and (is_script or not of_script):
                return self._row(code, frame.f_lineno, name)
            frame = frame.f_back
        return NO_LINE

    def _row(self, code: CodeType, number: int, name: str) -> int:
        key = code.co_filename, code.co_name, number
        row = self._rows.get(key)
        if row is None:
            text = f"{name}:{number} {code.co_name}"
            with self._lock:
                row = self._by_text.setdefault(text, len(self.texts))
                if row == len(self.texts):
                    self.texts.append(text)
            self._rows[key] = row
        return row

    def _name(self, code: CodeType) -> tuple[str, bool]:
        found = self._names[code.co_filename] = self._shown(code.co_filename) or ("", False)
        return found

    def _shown(self, file: str) -> tuple[str, bool] | None:
        """Returns how a file is shown, and whether it is the user's; None if its frames are never a line."""
        if not file.startswith("/") or file.startswith(TOOLS):
            return None
        if file.startswith(self._home) and not file.startswith(SITE):
            return file.removeprefix(self._home), True
        for site in SITE:
            if file.startswith(site + "/"):
                short = file.removeprefix(site + "/")
                return None if short.startswith(COMPILERS) else (short, False)
        if file.startswith(self._standard) or any(each in file for each in COMPILERS):
            return None
        return "/".join(Path(file).parts[-2:]), True


def _has_own_backward(frame: FrameType) -> bool:
    """Says whether a frame is the forward of a `torch.autograd.Function`, with a context or without."""
    of_class = frame.f_globals.get(frame.f_code.co_qualname.removesuffix(".forward"))
    first = next((frame.f_locals.get(name) for name in frame.f_code.co_varnames[:1]), None)
    is_function = isinstance(of_class, type) and issubclass(of_class, torch.autograd.Function)
    return is_function or isinstance(first, torch.autograd.function.FunctionCtx)
