"""Starts the ranks of a dry run as processes on virtual GPUs, and waits for their end.

::

    dry run ── reaper                             ends all and removes the folder, whatever happens to the dry run
       ├────── rank 0    LD_PRELOAD=virtual GPU   python -m nvcoll.dryrun.inside.rank: the script, unmodified
       └────── rank 8    the same                 ranks that run at the same time exchange objects in the folder

Ranks that are needed at the same time, as stages of a pipeline, are forks of one process that has imported torch
(`inside.forks`), which saves 0.2 GB and 3 s of the processor for each. Those of `--only-ranks` are not: a rank notes
what the import reads, unless an earlier attempt has.

The virtual GPU is loaded in these processes alone, and in processes that multiprocessing starts for the script
(`inside.children`). Each is the first of a session and ends with the dry run (`nvcoll.ranks.processes`); what a
rank has started ends with the folder of the dry run (`parent.reaper`). Temporary files of a rank are in this
folder, so no file is left; compiled kernels are in the user's cache, as compiling takes minutes.

A rank ends by itself when its steps are recorded. The limits of time and memory end all ranks with an error. Memory is
the resident memory of the ranks and of their children: virtual GPUs have address space without pages.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import FileIO
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any, Literal

from nvcoll._nvcoll import Fabric, GpuRow, InvalidArgument
from nvcoll.dryrun.parent import reaper
from nvcoll.dryrun.parent.failures import DryRunLimit
from nvcoll.dryrun.parent.inputs import noted_in
from nvcoll.dryrun.parent.installed import Torch, torch_installed
from nvcoll.dryrun.parent.library import libraries, library, user_cache, wheel_names
from nvcoll.dryrun.parent.reaper import Folder
from nvcoll.dryrun.wire import stacks
from nvcoll.dryrun.wire.rank_recording import RankRecording, Run
from nvcoll.dryrun.wire.spec import STEPS, VARIABLES, Spec
from nvcoll.dryrun.wire.statement import Statement
from nvcoll.ranks.processes import Fork, Process, Supervisor
from nvcoll.text.formatting import listed
from nvcoll.text.lines import Lines

LOOK_S = 0.25
"""Seconds between two readings of the memory of ranks. Chosen."""

SILENCE_S = 5.0
"""Seconds without output of the script after which a line says where it is. Chosen: who waits longer asks whether it
hangs."""

LAST_LINES = 30
"""The most lines of standard error in the error of a rank. Chosen: the end of a traceback."""

OTHER_LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_", "NVCOLL_RANK", "NVCOLL_WORLD_SIZE")
"""Variables of launchers: frameworks would read another job than the dry run from them."""

SPARE = 0.9
"""The part of this machine's free memory that ranks may use. Chosen."""

HOST_GPUS, TRAY_GPUS = 16, 4
"""The most GPUs of a host, and of a tray of a rack. Cited: DGX-2 has 16, a tray of NVL72 has 4 and is a host."""

REQUESTS = "4x1024"
"""The requests that a server gets by default, and the tokens of each. Chosen."""

LENGTHS = re.compile(r"(\d{1,9})|uniform:(\d{1,9})-(\d{1,9})")
"""What `--response-tokens` takes."""

INSIDE, FORKS = "nvcoll.dryrun.inside.rank", "nvcoll.dryrun.inside.forks"
"""The module that a rank runs, and that which forks several."""

IMPORTED = "nvcoll.dryrun.inside.session"
"""The module that ranks import before they run the script: torch, and what observes it."""

HIDDEN = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVCOLL_REPORT", "NVCOLL_TORCH", "NVCOLL_STRICT")
"""Other variables that a rank does not see: variables of this machine's GPUs, and of nvcoll's own backend."""


@dataclass(frozen=True)
class Request:
    """A script to record, and the conditions.

    Attributes:
        script: the script, or a module.
        arguments: its arguments.
        is_module: whether it runs as ``python -m``.
        world_size: the number of ranks.
        gpu: the GPU.
        gpus_per_node: the number of ranks on a host: ``LOCAL_WORLD_SIZE``. None: 8, and `on` takes the machine's.
        steps: the number of steps of the optimizer before the script is ended; the last one counts.
        time_limit_s: seconds after which ranks are ended.
        memory_limit_bytes: bytes of this machine that all ranks together may use; None: 90 % of free memory.
        is_quiet: whether the output of the script is hidden.
        environment: environment variables of ranks.
        ranks: the ranks that run. None: the ranks that are needed (`parent.roles`).
        is_cached: whether an earlier recording of the same script is used, and this one is kept.
        serves: of a model server, whose iterations are the steps: requests that it gets, as ``4x1024``, if it waits.
        step_at: the place of the statement that ends a step, as ``train.py:24``; empty: the optimizer does.
        loss: what one float reads as that derives from large floats, as a loss does. None: 0, or a result of zeros.
        response_tokens: the length of what `generate` makes, as ``256`` or ``uniform:64-512``; empty: as it may be.
        again: what shows predicted times in a second run, to the end of the script; empty: there is none.
        measures_host: whether further steps run, to measure the processor, if it may matter.
    """

    script: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    world_size: int = 8
    gpu: GpuRow = field(kw_only=True)
    gpus_per_node: int | None = None
    steps: int = STEPS
    time_limit_s: float = 1800.0
    memory_limit_bytes: float | None = None
    is_quiet: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    ranks: tuple[int, ...] | None = None
    is_cached: bool = True
    step_at: str = ""
    serves: str = ""
    loss: float | None = None
    response_tokens: str = ""
    again: Literal["", "profile", "clock"] = ""
    measures_host: bool = False

    def __post_init__(self) -> None:
        """Refuses a request that cannot run."""
        if self.world_size < 1:
            raise InvalidArgument(f"the world size is {self.world_size}: pass 1 or more")
        if self.steps < 1:
            raise InvalidArgument(f"{self.steps} steps cannot be recorded: pass 1 or more; the last one counts")
        if not self.is_module and not self.file.is_file():
            raise InvalidArgument(
                f"there is no script `{self.script}`: pass a file, or -m and a module, without torchrun"
            )
        if self.loss is not None and not math.isfinite(self.loss):
            raise InvalidArgument(f"losses cannot read as {self.loss}: pass a finite number to --loss")
        try:
            self.statement()
        except ValueError as why:
            raise InvalidArgument(f"{why}: pass --step-at FILE:LINE with the line that ends a step") from None
        self.lengths()
        self.requests()
        unknown = [name for name in ("sm", "sms", "usable_gib") if getattr(self.gpu, name) is None]
        if unknown:
            what = f"{self.gpu.title} cannot be a virtual GPU ({', '.join(unknown)} not known)"
            raise InvalidArgument(f"{what}: choose a machine with GPUs of NVIDIA, as hgx-h100")

    def statement(self) -> Statement | None:
        """Returns the statement that ends a step; None: the optimizer does."""
        folders = Path.cwd(), Path(self.script).absolute().parent
        return Statement.at(self.step_at, *folders) if self.step_at else None

    def lengths(self) -> list[int]:
        """Returns the least and the largest length of what `generate` makes; none: as long as it may be."""
        if not self.response_tokens:
            return []
        found = LENGTHS.fullmatch(self.response_tokens)
        low, high = (int(found[1] or found[nth]) for nth in (2, 3)) if found else (0, 0)
        if not 0 < low <= high:
            what = f"`{self.response_tokens}` is no length of responses"
            raise InvalidArgument(f"{what}: pass --response-tokens 256, or uniform:64-512")
        return [low, high]

    def requests(self) -> list[int]:
        """Returns how many requests a server gets at once and their tokens, perhaps in turn; none: it is no server."""
        found = []
        for one in self.serves.split(",") if self.serves else ():
            many, _, tokens = one.partition("x")
            if not (many.isdecimal() and tokens.isdecimal() and int(many) and int(tokens)):
                raise InvalidArgument(f"`{one}` are no requests: pass --requests 4x1024, four of 1,024 tokens each")
            found += [int(many), int(tokens)]
        return found

    @property
    def file(self) -> Path:
        """The script; of a server perhaps a command, as ``vllm``."""
        command = shutil.which(self.script) if self.serves and not Path(self.script).is_file() else None
        return Path(command or self.script).absolute()

    @property
    def of_host(self) -> int:
        """The number of ranks on the first host."""
        return min(self.world_size, self.gpus_per_node or 8)

    def on(self, machine: Fabric) -> Request:
        """Returns the request for the GPUs and hosts of a machine."""
        return replace(self, gpu=machine.gpu_model, gpus_per_node=self.gpus_per_node or hosts_of(machine))

    @property
    def words(self) -> str:
        """The script and its arguments as they are typed."""
        return " ".join([*(["-m"] if self.is_module else []), self.script, *self.arguments])


def hosts_of(machine: Fabric) -> int:
    """Returns the number of GPUs of a host: of a node, or of a tray of a rack."""
    of_node = machine.world_size // machine.nodes
    return of_node if of_node <= HOST_GPUS else TRAY_GPUS


def free_bytes() -> float:
    """Returns the memory of this machine that ranks may use."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = next((int(line.split()[1]) for line in file if line.startswith("MemAvailable")), 0)
    free = kib << 10 or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return SPARE * free


def memory_of(gpu: GpuRow) -> int:
    """Returns the bytes of a GPU that programs see, CUDA's context among them."""
    assert gpu.usable_gib is not None, "a request has checked it"
    return int(gpu.usable_gib * 2**30)


def virtual_gpu(gpu: GpuRow, devices: int, cuda_major: int) -> str:
    """Returns the value of NVCOLL_VGPU, which describes the GPU to the library."""
    name = f"NVIDIA {gpu.names[0] if gpu.names else gpu.title}"
    return f"name={name};cc={gpu.sm};sms={gpu.sms};memory={memory_of(gpu)};devices={devices};cuda={cuda_major}"


@dataclass(frozen=True)
class Predicted:
    """Predicted times that a second run shows the script.

    Attributes:
        times: the file of times (`parent.times`) of each rank that runs.
        period_ns: nanoseconds of a step.
        has_clock: whether the script's clock shows them, too, and not only its events and its profiler.
    """

    times: Mapping[int, bytes]
    period_ns: int
    has_clock: bool


def spec_of(
    request: Request, rank: int, ranks: Sequence[int], folder: Path, predicted: Predicted | None = None
) -> Spec:
    """Returns the spec of a rank."""
    return Spec(
        rank=rank,
        world_size=request.world_size,
        result=str(folder / "out" / str(rank)),
        script=request.script if request.is_module else str(request.file),
        mail=str(folder / "mail"),
        args=list(request.arguments),
        is_module=request.is_module,
        local_world_size=request.of_host,
        steps=request.steps,
        step_at=request.statement(),
        serves=request.requests(),
        loss=request.loss,
        measures_host=request.measures_host and predicted is None,
        response_tokens=request.lengths(),
        roles=list(ranks),
        finds_roles=request.ranks is None and predicted is None,
        memory=memory_of(request.gpu),
        times="" if predicted is None else str(folder / "times" / str(rank)),
        period_ns=0 if predicted is None else predicted.period_ns,
        reads=str(folder / "out" / f"{rank}.reads"),
        own=[f"{os.path.abspath(one)}/" for one in (folder, user_cache(), Path(__file__).parents[2])],
        outside={name: (os.environ | dict(request.environment)).get(name) for name in VARIABLES},
    )


def environment_of(request: Request, torch: Torch, temporary: Path) -> dict[str, str]:
    """Returns all environment variables of a rank; its place in the job is in its spec.

    Args:
        request: the request.
        torch: the torch that is installed.
        temporary: a folder for temporary files.

    Raises:
        CannotDryRun: this nvcoll has no virtual GPU.
    """
    driver, names = str(library()), libraries()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(OTHER_LAUNCHERS) and name not in HIDDEN
    }
    compiled = user_cache() / "compiled" / f"torch-{torch.version}"
    ours = {
        "NVCOLL_VGPU": virtual_gpu(request.gpu, request.of_host, torch.cuda_major),
        "LD_PRELOAD": ":".join([driver, *wheel_names(names), *filter(None, [kept.get("LD_PRELOAD")])]),
        "LD_LIBRARY_PATH": ":".join([str(names), *filter(None, [kept.get("LD_LIBRARY_PATH")])]),
        "PATH": f"{names}:{kept.get('PATH', os.defpath)}",
        "TRITON_LIBCUDA_PATH": str(names),
        "TRITON_CACHE_DIR": str(compiled / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor"),
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
    }
    return {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"} | kept | ours | dict(request.environment)


def run_ranks(
    request: Request,
    ranks: Sequence[int],
    predicted: Predicted | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[tuple[RankRecording | None, Run]]:
    """Runs some ranks of a script at the same time, to their end.

    Args:
        request: the request.
        ranks: the ranks that run.
        predicted: predicted times, for a second run, which ends with the script.
        tell: is called with where a rank is, while the script is silent.

    Raises:
        CannotDryRun: this machine cannot do a dry run.
        DryRunLimit: the limit of time or memory was reached. No rank is left.
        OSError: a process cannot be started.
    """
    if bad := [rank for rank in ranks if not 0 <= rank < request.world_size]:
        raise InvalidArgument(f"rank {bad[0]} is not one of {request.world_size} ranks, which count from 0")
    torch = torch_installed()
    sys.stdout.flush()
    with Folder() as folder:
        for name in ("mail", "tmp", "out", "times", "specs"):
            (folder.path / name).mkdir()
        for rank, text in (predicted.times if predicted is not None else {}).items():
            (folder.path / "times" / str(rank)).write_bytes(text)
        environment = environment_of(request, torch, folder.path / "tmp")
        if predicted is not None and predicted.has_clock:
            environment["NVCOLL_VGPU_CLOCK"] = "1"
        with _Ranks(request, folder) as running:
            running.begin([spec_of(request, rank, ranks, folder.path, predicted) for rank in ranks], environment)
            running.see_to_the_end(tell)
            return [running.outcome(process) for process in running.processes]


class _Ranks(Supervisor):
    """The ranks of a dry run."""

    def __init__(self, request: Request, folder: Folder) -> None:
        super().__init__(request.time_limit_s)
        self._request, self._folder = request, folder
        limit = request.memory_limit_bytes
        self._limit_bytes = free_bytes() if limit is None else limit
        self._last: dict[int, bytes] = {}
        self._servers: list[Process] = []
        """The process that has forked the ranks, if they are forks."""
        self._forks: list[Process] = []
        """Ranks that are to be forked."""
        self._shown: Lines | None = None
        self._heard = time.monotonic()

    def begin(self, specs: Sequence[Spec], environment: dict[str, str]) -> None:
        """Starts ranks, whose output goes to standard error: standard output has the report."""
        for spec in specs:
            spec.save(self._file(spec))
        if len(specs) > 1 and self._request.ranks is None:
            self._fork(specs, environment)
            return
        for spec in specs:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
            process = self._start(spec.rank, [INSIDE, "--spec", str(self._file(spec))], environment, **pipes)
            self._watch_output(process)

    def _file(self, spec: Spec) -> Path:
        return self._folder.path / "specs" / str(spec.rank)

    def _start(self, rank: int, words: Sequence[str], environment: dict[str, str], **how: Any) -> Process:
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        stdin = None if os.isatty(0) else subprocess.DEVNULL
        command = [sys.executable, *flags, "-P", "-m", *words]
        process = self.start(rank, command, stdin=stdin, env=environment, **how)
        self._folder.owns(process.popen.pid)
        return process

    def _fork(self, specs: Sequence[Spec], environment: dict[str, str]) -> None:
        """Starts the process that forks the ranks; until it has, it is the first of them."""
        ours, theirs = Pipe(duplex=False)
        outputs = [(os.pipe(), os.pipe()) for _ in specs]
        ends = [end for pair in outputs for _, end in pair]
        rows = [
            f"{self._file(spec)},{out},{errors}" for spec, out, errors in zip(specs, ends[::2], ends[1::2], strict=True)
        ]
        with theirs:
            words = [FORKS, str(theirs.fileno()), IMPORTED, INSIDE, *rows]
            first, passed = specs[0].rank, (theirs.fileno(), *ends)
            server = self._start(first, words, environment, pipe=ours, pass_fds=passed, stdout=ends[0], stderr=ends[1])
        for end in ends:
            os.close(end)
        for spec, ((out, _), (errors, _)) in zip(specs, outputs, strict=True):
            fork = Fork(server.popen.pid, FileIO(out), FileIO(errors))
            self._forks.append(Process(spec.rank, fork, server.ended))
            self._watch_output(self._forks[-1])

    def _take_forks(self, server: Process, numbers: Sequence[int]) -> None:
        self._servers.append(server)
        self.processes.remove(server)
        for fork, number in zip(self._forks, numbers, strict=True):
            self.add(fork.rank, Fork(number, fork.popen.stdout, fork.popen.stderr))
            self._folder.owns(number)

    def _watch_output(self, process: Process) -> None:
        for output in (process.popen.stdout, process.popen.stderr):
            assert output is not None
            self.watch(process, output, self._reader(output, is_error=output is process.popen.stderr))

    def _reader(self, output: IO[bytes], is_error: bool) -> Callable[[], Any]:
        def read() -> tuple[bytes, bool] | None:
            piece = os.read(output.fileno(), 1 << 16)
            return (piece, is_error) if piece else None

        return read

    def see_to_the_end(self, tell: Callable[[str], None]) -> None:
        """Passes the output on until all ranks have ended, and tells where one is while there is none.

        Raises:
            DryRunLimit: the limit of time or memory was reached.
        """
        if not self._request.is_quiet:
            self._shown = Lines(sys.stderr.fileno(), is_prefixed=len(self.processes) > 1 or bool(self._forks))
        while self.running():
            self._take(self.wait(min(self.deadline, time.monotonic() + LOOK_S)))
            self._judge()
            if time.monotonic() >= self._heard + SILENCE_S and (running := self.running()):
                self._heard = time.monotonic()
                if self._shown is not None:
                    self._shown.end_line()
                line, used = self._line(running[0]), sum(self._used().values())
                tell(
                    f"{listed([one.rank for one in running])} of {self._request.world_size}"
                    f"{f' at {line}' if line else ''}, {used / 1e9:.1f} GB"
                )
        self._take(self.wait(0))
        if self._shown is not None:
            self._shown.end()

    def _take(self, events: Sequence[tuple[Process, Any]]) -> None:
        for process, output in events:
            if output is None:
                if process.status:  # the others wait for messages of this one
                    self.begin_grace()
                continue
            if isinstance(output, list):
                self._take_forks(process, output)
                continue
            piece, is_error = output
            if is_error:
                lines = (self._last.get(process.rank, b"") + piece).splitlines(keepends=True)
                self._last[process.rank] = b"".join(lines[-LAST_LINES:])
            if self._shown is not None:
                self._shown.take(process.rank, piece)
                self._heard = time.monotonic()
        if self._shown is not None:
            self._shown.pass_on_rests()

    def kill(self) -> None:
        """Kills all ranks and what they have started, but for what cleans up after them."""
        reaper.kill({process.popen.pid for process in (*self.processes, *self._servers)}, str(self._folder.path))

    def close(self) -> None:
        """Also ends the process that has forked the ranks."""
        self.processes += self._servers
        super().close()
        for fork in self._forks:
            for output in filter(None, (fork.popen.stdout, fork.popen.stderr)):
                output.close()

    def _used(self) -> dict[Process, int]:
        """Returns the memory of each process that runs."""
        used = {process: _resident_bytes(process.popen.pid, self._servers) for process in self.running()}
        return used | {server: _pss(server.popen.pid) for server in self._servers if used}

    def _judge(self) -> None:
        """Ends all ranks at a limit, or after one of them has failed."""
        used = self._used()
        if sum(used.values()) > self._limit_bytes:
            gb, limit = sum(used.values()) / 1e9, self._limit_bytes / 1e9
            what = f"the ranks of the dry run use {gb:.1f} GB of this machine's memory, the limit is {limit:.1f}"
            fewer = ", or fewer --only-ranks" if len(used) > 1 else ""
            largest = max(self.running(), key=lambda one: used[one])
            raise self._limit(what, largest, f"pass a larger --memory-limit{fewer}")
        if time.monotonic() < self.deadline or not self.running():
            return
        if any(process.status for process in self.processes):
            self.kill()  # the output of the failed one is the answer
            self.deadline = math.inf
            return
        seconds, waiting = self._request.time_limit_s, self.running()[0]
        what = f"rank {waiting.rank} has not reached the end of step {self._request.steps} after {seconds:g} s"
        raise self._limit(
            what, waiting, "pass a larger --time-limit, or --step-at if its optimizer is none of torch.optim"
        )

    def _limit(self, what: str, process: Process, advice: str) -> DryRunLimit:
        """Returns the error of a limit, with the line of the script at which a rank is."""
        line = self._line(process)
        where = f"; rank {process.rank} is at {line}" if line else ""
        return DryRunLimit(f"{what}{where}: {advice}", line=line)

    def _line(self, process: Process) -> str:
        """Returns the line of the script at which a rank is, or ""."""
        script = Path(self._request.script)
        homes = [Path.cwd()] if self._request.is_module else [script.absolute().parent, script.resolve().parent]
        return stacks.line_of(process.popen.pid, self._folder.path / "out" / str(process.rank), homes)

    def outcome(self, process: Process) -> tuple[RankRecording | None, Run]:
        """Returns the recording of a rank, and how the rank ended."""
        out = self._folder.path / "out" / str(process.rank)
        if not Run.beside(out).exists():
            last = self._last.get(process.rank, b"").decode(errors="replace").strip()
            message = f"its process {process.how()}" + (f": {last}" if last else "")
            is_killed = process.status == -signal.SIGKILL
            return None, Run(process.rank, "failed", message=message, follows="killed" if is_killed else "")
        run = Run.load(out)
        run.noted = noted_in(out.with_suffix(".reads"))
        return RankRecording.load(out) if run.status == "counted" else None, run


def _resident_bytes(process: int, is_fork: object) -> int:
    """Returns the resident memory of a process and of what it has started; what they share counts once."""
    processes = reaper.descendants(process)
    if len(processes) == 1 and not is_fork:
        return _field(f"/proc/{process}/status", "VmRSS:")
    return sum(map(_pss, processes))


def _pss(process: int) -> int:
    return _field(f"/proc/{process}/smaps_rollup", "Pss:")


def _field(file: str, name: str) -> int:
    """Returns the bytes of a field of a file of Linux; 0: the process has just ended."""
    with suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 0)
    return 0
