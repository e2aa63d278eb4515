"""The spec of a child of a dry run: a JSON file from the parent, and the variables that torchrun would set."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nvcoll.dryrun.wire.statement import Statement

STEPS = 3
"""The default number of steps of the optimizer; the last one counts. Chosen: DDP rebuilds its buckets in the second."""


VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH")
"""Variables that load the virtual GPU. It reads its own (NVCOLL_VGPU) at the first call, so they stay."""


@dataclass
class Spec:
    """The fields of the JSON file."""

    rank: int
    world_size: int
    result: str
    """Path of the recording to write."""
    script: str
    """Path of the script, or name of the module."""
    mail: str
    """Folder that all ranks of the dry run share."""
    args: list[str] = field(default_factory=list)
    is_module: bool = False
    local_world_size: int = 8
    steps: int = STEPS
    """Steps to run; the last one counts."""
    measures_host: bool = False
    """Whether further steps run after the counted one, to measure the processor."""
    serves: list[int] = field(default_factory=list)
    """Of a model server, whose iterations are the steps: requests that it gets, if it waits, and tokens of each."""
    step_at: Statement | None = None
    """The statement that ends a step; None: the optimizer does."""
    loss: float | None = None
    """What one float reads as that derives from large floats; None: what follows from zeros."""
    response_tokens: list[int] = field(default_factory=list)
    """The least and the largest length of what `generate` makes; empty: as long as the script allows."""
    roles: list[int] = field(default_factory=list)
    """Ranks that run at the same time, this one included."""
    finds_roles: bool = False
    """Whether further ranks run if this one needs them."""
    memory: int = 0
    """Bytes that programs can get from the GPU, for the recording."""
    times: str = ""
    """File of predicted times, for a second run, which ends with the script; empty: the first run."""
    period_ns: int = 0
    """Nanoseconds of a step in a second run."""
    reads: str = ""
    """File in which the rank notes what the script reads; empty: it notes nothing."""
    own: list[str] = field(default_factory=list)
    """Beginnings of the names of files of the dry run itself, which do not count."""
    outside: dict[str, str | None] = field(default_factory=dict)
    """Variables as programs get them that the script starts."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the spec to a JSON file."""
        Path(path).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Spec:
        """Reads a spec from a JSON file."""
        row = json.loads(Path(path).read_text())
        at = row.get("step_at")
        return cls(**row | {"step_at": Statement(*at) if at else None})


def environment(spec: Spec) -> dict[str, str]:
    """Returns the variables that torchrun would set for a rank."""
    local = min(spec.local_world_size, spec.world_size)
    host, rank = spec.rank // local, str(spec.rank)
    return {
        "RANK": rank,
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_RANK": str(spec.rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(host),
        "GROUP_WORLD_SIZE": str(-(-spec.world_size // local)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": str(spec.world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "nvcoll-dryrun",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    }
