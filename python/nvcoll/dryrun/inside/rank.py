"""The child of a dry run: `python -m nvcoll.dryrun.inside.rank --spec FILE`, with the virtual GPU preloaded.

```
environment as torchrun sets it -> torch -> store, peers, operators, steps -> the script, by runpy, as `__main__`
          the optimizer returns for the last wanted step: the recording is written, and the process exits
          the script ends, exits or raises before: the number of steps is written
```

The process exits with `os._exit` inside of the optimizer's call: no code of the script after the counted step runs, no
`finally`, no checkpoint at exit. Data workers are ended. The output of the script is not changed.
"""

from __future__ import annotations

import os
import random
import resource
import runpy
import sys
import time
from dataclasses import replace
from itertools import pairwise
from multiprocessing import active_children
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from nvcoll.dryrun.inside import children
from nvcoll.dryrun.inside.children import Training
from nvcoll.dryrun.inside.reads import Reads
from nvcoll.dryrun.wire import stacks
from nvcoll.dryrun.wire.host_speed import host_speed
from nvcoll.dryrun.wire.rank_recording import NO_GPU, USE_GPU, RankRecording, Run, Status
from nvcoll.dryrun.wire.served import KINDS, Served
from nvcoll.dryrun.wire.spec import Spec, environment

if TYPE_CHECKING:
    from nvcoll.dryrun.inside.session import Session

WATCHING = ("/torch/_compile.py", "/nvcoll/dryrun/inside/ops.py")
"""Files through which operators are called in a dry run alone."""

BEGAN = time.monotonic()


class Child:
    """The run of one script."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.run = Run(rank=spec.rank, status="failed", exit_status=1)
        self.session: Session | None = None
        self.has_recording = False
        self.reads = Reads(spec.reads, spec.own) if spec.reads else None
        self._iterations: dict[tuple[str, int], RankRecording] = {}
        self._exit, self._process = os._exit, os.getpid()

    def main(self) -> NoReturn:
        """Runs the script, and exits."""
        os.environ.update(environment(self.spec))
        os._exit = self._left
        random.seed(0)
        stacks.register(self.spec.result)
        if self.reads is not None:
            self.reads.begin(self.spec.args)
        try:
            from nvcoll.dryrun.inside.session import Session

            self.session = Session(self.spec, self.finish, self._failed, self.become, self.keep, self._counted)
            children.begin(self.spec.outside, self.spec.reads, self.spec.own, notes=False)
        except BaseException as error:
            self._failed(error)
        words = [*(["-m"] if self.spec.is_module else []), self.spec.script, *self.spec.args]
        found = children.training_of(["python", *words])
        plain = Training(self.spec.script, self.spec.args, self.spec.is_module, has_launcher=False)
        self.become(found if found is not None and found.has_launcher else plain)

    def become(self, training: Training) -> NoReturn:
        """Runs a script as this rank, and exits: that of the spec, or one that it starts in another process."""
        os.environ.update(environment(self.spec))  # not those of a launcher
        try:
            self._script(training)
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
            if isinstance(exit.code, str):
                print(exit.code, file=sys.stderr)
            self._leave("ended", f"the script left with `sys.exit({exit.code!r})` after {self._seen()}", status)
        except BaseException as error:
            self._failed(error)
        self._leave("ended", f"the script ended after {self._seen()}", 0)

    def _left(self, status: int) -> NoReturn:
        """Stands for `os._exit`: writes the number of steps first, except in a forked process."""
        if os.getpid() == self._process:
            self._leave("ended", f"the script left with `os._exit({status})` after {self._seen()}", status)
        self._exit(status)

    def finish(self) -> None:
        """Writes the recording of the counted step, which has ended, and exits.

        If torch compiled something in the step, the next step counts instead, if there is one.
        """
        assert self.session is not None
        if not self.session.data.uses_gpu:
            self._leave("refused", f"{NO_GPU}: {USE_GPU}", 1)
        self.session.recording().save(self.spec.result)
        self.has_recording = True
        if not self.session.goes_on() and not self.session.measure(self._counted):
            self._counted()

    def keep(self, served: Served) -> None:
        """Writes the recording of an iteration of a server, with those of other kinds; decode comes first.

        Of requests that come in turn, iterations of other numbers of sequences are other kinds.
        """
        assert self.session is not None
        kind = served.kind, len(served.new) if len(self.spec.serves) > 2 else 0
        self._iterations[kind] = self.session.recording(served)
        first, *others = (
            self._iterations[one] for one in sorted(self._iterations, key=lambda one: (KINDS.index(one[0]), one[1]))
        )
        replace(first, also=others).save(self.spec.result)
        self.has_recording = True

    def _counted(self) -> NoReturn:
        self._leave("counted", "", 0)

    def _script(self, training: Training) -> None:
        sys.argv = [training.script, *training.args]
        if training.is_module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(training.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(training.script).resolve().parent))
            runpy.run_path(training.script, run_name="__main__")

    def _seen(self) -> str:
        if self.spec.serves:
            return "no iteration of a server was seen"
        steps = len(self.session.steps.positions) if self.session is not None else 0
        made = "1 step of an optimizer was" if steps == 1 else f"{steps} steps of an optimizer were"
        started = self.session.started[-1:] if self.session is not None and not steps else ()
        other = "".join(f"; it starts `{command}`: pass that script if it trains" for command in started)
        if self.session is not None and not (self.session.data.uses_gpu or started):
            other = f", and {NO_GPU}"
        return f"{made} seen, {self.spec.steps} are needed{other}"

    def _note_read(self) -> None:
        what, place = self.session.data.last_read if self.session is not None else ("", "")
        self.run.read = f"{what} ({place})" if place else ""

    def _failed(self, error: BaseException) -> NoReturn:
        from nvcoll.dryrun.inside.mail import Waits
        from nvcoll.errors import DryRunError

        if self.session is not None and self.session.host is not None:  # in a step that does not count
            self._counted()
        trace = _of_script(error.__traceback__)
        sys.stdout.flush()
        if not isinstance(error, DryRunError):  # which the parent prints
            sys.excepthook(type(error), error.with_traceback(trace), trace)
        if self.session is not None:
            self.run.line = self.session.lines.of_trace(trace)
            _, place = self.session.data.last_read
            if place and self.session.lines.is_raised_beside(place, trace):
                self._note_read()
        status: Status = "failed"
        if isinstance(error, DryRunError):
            status, self.run.line = "refused", error.line or self.run.line
            self.run.follows = "ended" if isinstance(error, Waits) else ""
        text = str(error).strip().split("\n")[0]
        if self.session is not None and type(error).__name__ == "OutOfMemoryError":
            text = f"{text.split(' If reserved')[0]} In tensors: {self.session.memory.held()}."
        self._leave(status, f"{type(error).__name__}: {text}" if text else type(error).__name__, 1)

    def _leave(self, status: Status, message: str, exit_status: int) -> NoReturn:
        if status == "ended" and self.has_recording:
            status, message, exit_status = "counted", "", 0
        if status == "ended":
            self._note_read()
        run = self.run
        run.status, run.message, run.exit_status = status, message, exit_status
        run.seconds = time.monotonic() - BEGAN
        run.peak_rss_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - self._shared_bytes()
        if self.session is not None:
            wanted = None if self.spec.serves else self.session.steps.wanted
            times = self.session.steps.times[:wanted]
            run.unmeasured = self.session.unmeasured
            if self.session.host is not None:
                run.gaps, run.unmeasured = self.session.host.measured()
                run.host_speed = host_speed()
            run.steps = len(times)
            run.step_seconds = [later - earlier for earlier, later in pairwise(times)]
            run.wanted = sorted(self.session.peers.wanted)
            self.session.mail.end()
        run.save(self.spec.result)
        if self.reads is not None:
            self.reads.end()
        for worker in active_children():
            worker.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        self._exit(exit_status)

    def _shared_bytes(self) -> int:
        """Returns the memory that counts as of other ranks, which have it, too."""
        if len(self.spec.roles) < 2:
            return 0
        with open("/proc/self/smaps_rollup", encoding="ascii", errors="replace") as file:
            sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in file if line.startswith(("Rss:", "Pss:"))}
        return sizes["Rss:"] - sizes["Pss:"]


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the dry run's frames around the script; the whole traceback if no frame is left."""
    own = ("<frozen runpy>", runpy.__file__, __file__)
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename in own:
        first = first.tb_next
    last = first
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_code.co_filename.endswith(WATCHING):
            last.tb_next = None  # from here on the dry run calls the operator
        last = last.tb_next
    return first or trace


if __name__ == "__main__":
    Child(Spec.load(sys.argv[-1])).main()
