"""The recording of one rank of a dry run: its calls in the counted step.

```
record      64 bytes: one call to the GPU, in the order of the host's calls
  |  .op    number of a row of `ops` (0: no operator of torch was at work)
  |  .name  number of a row of `names`
  |  .args  by kind, see `wire.virtual_gpu.Kind`
op          operator of torch: name, FLOPs, bytes, inputs, line
  |  .line  number of a row of `lines`
line        "model.py:42 forward"
```

Recordings of the same script, arguments and versions are identical: they hold no addresses, times or process numbers.
Time and memory of a run are in `Run`, in another file. Both files are in the folder of the dry run.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from nvcoll.dryrun.wire.served import Served
from nvcoll.dryrun.wire.stamps import Note
from nvcoll.dryrun.wire.virtual_gpu import Records

NO_GPU, USE_GPU = "no operator of the script ran on a GPU", "pass the option that makes it use one"
"""Why a rank has no step, and what to do."""

EMBEDDING = "embedding"
"""A part of the names of operators that look up tokens."""


@dataclass(frozen=True)
class Op:
    """One operator of torch in the counted step."""

    name: str
    """`aten::mm`, or the name of a kernel that torch.compile or Triton made."""
    flops: int = 0
    """FLOPs as torch's FLOP counter counts them; 0 if it knows no formula."""
    bytes: int = 0
    """Bytes of the GPU's memory that its kernels read and write; of compiled kernels all of its tensors, each once."""
    inputs: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shape and dtype (`bfloat16`) of its first tensors, at most four."""
    line: int = 0
    """Number of its row in `lines`."""
    is_backward: bool = False
    """Whether the autograd engine issued it; then its line is the line of the forward operator."""
    is_causal: bool = False
    """Whether it is attention in which a query sees no later keys."""
    numbers: tuple[int, ...] = ()
    """Of an embedding: numbers of `inputs`. The same elements of the same memory have the same number."""
    trains: bool = True
    """Of an embedding: whether its pass has gradients."""
    pairs: int = 0
    """Of attention over packed sequences, caches or windows: pairs of a query and a key that it sees, twice these if it
    is causal; of batches those of one sequence. 0: all."""
    is_bound: bool = False
    """Whether it is a kernel of which only the bytes of its arguments are known."""


@dataclass(frozen=True)
class Group:
    """The ranks of a communicator."""

    name: str
    """The description of the group, if its maker gave one (`mesh_tp`), else its name in torch."""
    ranks: tuple[int, ...]
    """Global ranks, in the order of the communicator."""


@dataclass(frozen=True)
class Memory:
    """Memory of the rank's GPU in the counted step, as torch's caching allocator counts it."""

    allocated: int = 0
    """Bytes in tensors at the peak."""
    reserved: int = 0
    """Most bytes that the allocator held."""
    parts: tuple[tuple[str, int], ...] = ()
    """Bytes by category at the peak: parameters, gradients, optimizer state, and so on; the sum is `allocated`."""
    stack: tuple[str, ...] = ()
    """Lines that were at work at the peak, innermost first."""
    capacity: int = 0
    """Bytes that programs can get from the GPU."""
    kept_by: str = ""
    """The line that made most of the bytes that outlive the step, but for parameters, gradients and optimizer state."""


class Growth(TypedDict, total=False):
    """How tensors grew in the counted step; empty: they did not."""

    bytes: int
    """Bytes in tensors at the end of the step beyond the bytes at the end of the step before."""
    step: int
    """The number of the counted step, from 1."""
    line: str
    """The line that made most of what the step left, or ""."""


@dataclass(frozen=True)
class Assumption:
    """An assumption of the dry run about data that do not exist."""

    text: str
    """A sentence: "topk picks experts in turn"."""
    line: int
    """Number of its row in `lines`."""
    times: int = 1
    """The number of times since the start of the script."""


@dataclass
class RankRecording:
    """One step of one rank."""

    rank: int
    world_size: int
    records: Records
    """array (n,) of `RECORD`: the counted step."""
    names: list[str]
    """Names of kernels (mangled), collectives and communicators."""
    ops: list[Op]
    """Row 0 stands for "no operator"."""
    lines: list[str]
    """Row 0 stands for "no line"."""
    groups: dict[int, Group]
    """By number of communicator, also of those made before the step."""
    memory: Memory
    host_ops: int = 0
    """Operators and compiled kernels that the processor dispatched in the counted step, those on the CPU included."""
    steps: list[int] = field(default_factory=list)
    """Position in the whole log after each step that was seen. The counted step lies between the last two."""
    optimizer: str = ""
    """The class of the optimizer at which steps were recognised."""
    unanswered: list[str] = field(default_factory=list)
    """CUDA functions that were called, and that the virtual GPU does not implement: they return success."""
    assumed: list[Assumption] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of Python, torch and the frameworks that the script imported."""
    ddp_waits: bool = False
    """Whether DistributedDataParallel runs on a backend that makes the stream wait for each bucket's all_reduce."""
    is_alone: bool = False
    """Whether the script made no process group and no communicator: it trains on one GPU."""
    without_gradients: dict[str, float] = field(default_factory=dict)
    """Share of the step's FLOPs in forward passes without gradients that are new in it, by the line that calls them."""
    passes: list[tuple[int, str]] = field(default_factory=list)
    """Operators at which a pass begins: without gradients with the line that calls it, or training with no line."""
    saves: list[str] = field(default_factory=list)
    """Lines that called `torch.save` in the step."""
    growth: Growth = field(default_factory=Growth)
    served: Served | None = None
    """The iteration of a server that the step is."""
    also: list[RankRecording] = field(default_factory=list)
    """Iterations of another kind that the same run of a server recorded."""

    def save(self, path: str | Path) -> None:
        """Writes the recording to a file."""
        Path(path).write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: str | Path) -> RankRecording:
        """Reads a recording from a file that a child has written."""
        found = pickle.loads(Path(path).read_bytes())
        assert isinstance(found, cls)
        return found


Status = Literal["counted", "ended", "failed", "refused"]


@dataclass
class Run:
    """How a child ended. Each child writes it to a JSON file beside the recording, `RESULT.run.json`."""

    rank: int
    status: Status
    """counted: the step was recorded. ended: the script ended or left before. failed: it raised. refused: a rule of the
    dry run stopped it."""
    steps: int = 0
    """Steps that were seen."""
    message: str = ""
    """The number of steps, or the error, in one sentence."""
    line: str = ""
    """The line of the script, if it failed or was refused."""
    read: str = ""
    """The value that the script read last and that was not computed, with its place, if it may have decided."""
    follows: Literal["", "ended", "killed"] = ""
    """What another rank may be the cause of: the message of a rank that ended did not come, or it was killed."""
    exit_status: int = 0
    """What the script passed to `sys.exit`; 1 if it failed."""
    seconds: float = 0.0
    """From the start of the child."""
    step_seconds: list[float] = field(default_factory=list)
    """Seconds of each step that was seen."""
    peak_rss_bytes: int = 0
    wanted: list[int] = field(default_factory=list)
    """Ranks that do not run, and for whose objects this rank waited: they must run, too."""
    gaps: list[float] = field(default_factory=list, repr=False)
    """Seconds of the processor before each record of the counted step, in steps without observers; empty: not known."""
    host_speed: float = 0.0
    """The speed of this processor (`wire.host_speed`), if gaps are known."""
    unmeasured: str = ""
    """Why gaps are not known, if they may matter."""
    noted: list[Note] | None = field(default=None, repr=False)
    """What the script read (`inside.reads`), for the cache; None: it is not known. The parent adds it."""

    @staticmethod
    def beside(result: str | Path) -> Path:
        """Returns the path of the file for the path of a recording."""
        return Path(f"{result}.run.json")

    def save(self, result: str | Path) -> None:
        """Writes the file beside a recording."""
        self.beside(result).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, result: str | Path) -> Run:
        """Reads the file beside a recording."""
        return cls(**json.loads(cls.beside(result).read_text()))
