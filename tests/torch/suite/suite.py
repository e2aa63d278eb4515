"""The suite in torch's wheel, imported for one shown name and one world size, with another backend under it.

torch ships ``torch/testing/_internal/distributed/distributed_test.py``: 285 cases that PyTorch runs on its own
backends. The module reads ``BACKEND`` and ``WORLD_SIZE`` from the environment while it is imported and skips cases by
the *name* of the backend. A name it does not know is refused most of them: timeouts, sparse tensors, subgroups,
monitored barriers. So the suite is shown a name it knows, and the process groups are built with the backend under test:

    when                             the suite sees
    import (decorators)              the shown name: gloo, then mpi for what gloo was refused
    init_process_group, get_backend  the backend under test, in the module's own ``BACKEND``
    os.environ["BACKEND"] in a case  mpi from 3 ranks on, gloo at 2

The last line is for ``skip_if_small_worldsize``, which leaves out the cases with subgroup [1, 2] below 8 ranks unless
the name is mpi. They need 3 ranks. One family of cases (`SHOWN_IN_BODY`) chooses its model by the module's ``BACKEND``
and is shown the name there too.

Profiler events are asserted for the names in the suite's ``*_PROFILING_SUPPORTED_BACKENDS`` only, and compared with
``dist.get_backend()``. So gloo's events are checked and those of a foreign name are not: what a foreign backend passes
says nothing about its profiler events, which 63 of gloo's cases at 3 ranks check.

Cost: an import takes 0.03 s in a process that has imported torch. Source: ours. It starts no process: see ``ranks.py``.
"""

import importlib
import os

import torch
import torch.testing._internal.common_distributed as harness

SHOWN = ("gloo", "mpi")
"""The names the suite is shown, in turn; what one is refused is tried with the next."""

SHOWN_IN_BODY = "test_accumulate_gradients_no_sync"
"""How cases begin that read the module's ``BACKEND`` to choose between a model on the CPU and one on a GPU."""

SKIPS = {skip.exit_code: skip.message for skip in harness.TEST_SKIPS.values() if skip.exit_code != 72}
"""The words for each exit status that means *skipped*. 72 says that the backend is missing, which is a failure here."""

BACKENDS = {"nvcoll": "nvcoll.torch"}
"""The module whose import registers a backend that torch does not have."""


class Suite:
    """The cases under one shown name at one world size; the process that makes one runs no other."""

    def __init__(self, backend: str, shown: str, world_size: int):
        os.environ.update(BACKEND=shown, WORLD_SIZE=str(world_size), INIT_METHOD="file://")
        self.module = importlib.import_module("torch.testing._internal.distributed.distributed_test")
        self.module.BACKEND = backend
        os.environ["BACKEND"] = "mpi" if world_size > 2 else "gloo"
        os.environ["MASTER_ADDR"] = str(self.module.MASTER_ADDR)
        self.shown, self.world_size = shown, world_size
        module = self.module

        class Cases(module.TestDistBackend, module.DistributedTest._DistTestBase):
            def run_test(self, case, pipe):
                if case.startswith(SHOWN_IN_BODY):
                    module.BACKEND = shown
                super().run_test(case, pipe)

        self.cases = Cases

    def names(self) -> list[str]:
        """Returns the names of all cases."""
        return sorted(name for name in dir(self.cases) if name.startswith("test_"))

    def words_of_skip(self, case: str) -> str:
        """Returns why the suite skips a case before it starts ranks; empty if it does not."""
        function = getattr(self.cases, case)
        gpus = getattr(function, "_min_gpus_required", 0)
        if gpus > torch.accelerator.device_count():
            return f"needs {gpus} GPUs"
        return getattr(function, "__unittest_skip_why__", "") if getattr(function, "__unittest_skip__", False) else ""

    def enter(self, rank: int, case: str, folder: str, pipe) -> None:
        """Runs a case as one of its ranks, in this process, and ends it with the status that says what happened."""
        os.environ["TEMP_DIR"] = folder
        self.module.INIT_METHOD = f"file://{folder}/init_dir/store"
        self.cases._run(rank, case, f"{folder}/store", pipe)
