"""One process of a set: makes the default process group, runs features one after the other, tells the launcher.

::

    store       rank 0 serves a TCPStore on a port that the kernel chooses, and writes the port to a file
    each name   "begun" to its file of outcomes, the feature, then "passed" or "failed" with the traceback
    a failure   the process ends at once with status 1: its peers may wait in a call, and the launcher ends them
    the end     the process group is destroyed, as a program should

The environment is that of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and ranks are clients of a
store that is there already.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

from frameworks.features import Rank

TIMEOUT = timedelta(seconds=60)
"""Of a call. Chosen: less than the launcher waits, so that a rank says which call hangs."""


def main() -> None:
    """Runs features. Arguments: whether they make the group, a folder, and ``file.feature`` for each."""
    makes_group, folder, *names = sys.argv[1:]
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ["NVCOLL_TORCH_BACKEND"]
    outcomes = open(Path(folder) / f"outcomes-{rank}.jsonl", "a", buffering=1)  # noqa: SIM115

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "nvcoll":
        import nvcoll.torch  # noqa: F401
    store = _store(rank, Path(folder) / "port")
    if not int(makes_group):
        dist.init_process_group(backend, timeout=TIMEOUT)
    for name in names:
        outcomes.write(json.dumps({"name": name, "outcome": "begun"}) + "\n")
        own = Path(folder) / name
        own.mkdir(exist_ok=True)
        began = time.monotonic()
        try:
            file, function = name.split(".")
            getattr(importlib.import_module(f"frameworks.{file}"), function)(Rank(rank, world_size, backend, own))
        except BaseException:
            traceback.print_exc()
            told = {"name": name, "outcome": "failed", "detail": traceback.format_exc()}
            outcomes.write(json.dumps(told) + "\n")
            sys.stdout.flush()
            os._exit(1)
        told = {"name": name, "outcome": "passed", "seconds": time.monotonic() - began}
        outcomes.write(json.dumps(told) + "\n")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    outcomes.write(json.dumps({"name": "", "outcome": "ended"}) + "\n")
    store.set(f"ended-{rank}", "")
    if rank == 0:  # the store ends with the process
        store.wait([f"ended-{other}" for other in range(world_size)], TIMEOUT)


def _store(rank, file):
    from torch.distributed import TCPStore

    if rank == 0:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
        file.with_suffix(".new").write_text(str(store.port))
        file.with_suffix(".new").rename(file)
    else:
        while not file.exists():
            time.sleep(0.01)
        store = TCPStore("localhost", int(file.read_text()), is_master=False, timeout=TIMEOUT)
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")
    return store


if __name__ == "__main__":
    main()
