"""Traces for tests, made by hand: documents of the form that Kineto writes, and a text of HLO."""

from __future__ import annotations

HLO = """HloModule jit_f, num_partitions=8

ENTRY %main (x: f32[128,512], w: f32[512,64]) -> f32[128,64] {
  %x = f32[128,512]{1,0} parameter(0)
  %w = f32[512,64]{1,0} parameter(1)
  LINE
  ROOT %y = f32[128,64]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

RANKS = 8
GROUP = {"Process Group Name": "0", "Process Group Description": "default_pg", "Group size": RANKS}


class Writer:
    """Writes events of one rank; times are microseconds."""

    def __init__(self, rank=0, gpu="NVIDIA A100-SXM4-80GB", ranks=RANKS):
        self.events, self.number, self.ranks = [], 0, ranks
        self.document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": gpu}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "traceEvents": self.events,
        }

    def event(self, category, name, start, duration, thread=1, **args):
        """Adds an event."""
        row = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": duration}
        self.events.append(row | {"args": args})

    def step(self, number, start, end):
        """Adds the mark of a step."""
        self.event("user_annotation", f"ProfilerStep#{number}", start, end - start)

    def call(self, name, start, duration=5, thread=1, **args):
        """Adds a call of the runtime; returns its number."""
        self.number += 1
        self.event("cuda_runtime", name, start, duration, thread, correlation=self.number, **args)
        return self.number

    def kernel(
        self, name, launched, start, duration, stream=7, category="kernel", thread=1, launch="cudaLaunchKernel", **args
    ):
        """Adds a launch and its kernel."""
        external = {"External id": args.pop("external", 1000 + self.number)}
        number = self.call(launch, launched, thread=thread, **external)
        self.event(
            category, name, start, duration, stream, stream=stream, device=0, correlation=number, **external, **args
        )

    def collective(self, name, launched, start, duration, elements, stream=20, dtype="Float", **more):
        """Adds a collective of NCCL with what torch says of it."""
        ranks = {"Process Group Ranks": str([*range(self.ranks)])} | GROUP | more
        kernel = f"ncclDevKernel_{name}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        words = {"Collective name": name.lower(), "dtype": dtype, "In msg nelems": elements, "Out msg nelems": elements}
        self.kernel(kernel, launched, start, duration, stream, **(words | ranks | {"Group size": self.ranks} | more))


def of_two_layers(rank=0, milliseconds=1.0, **how):
    """A step of 3 ms: two layers, an all_reduce of 40 MB after each, the second of which the optimizer waits for.

    Launches run ahead: kernel 2 is ready before kernel 1 has ended.
    """
    one = Writer(rank, **how)
    one.step(1, 0, 3000)
    one.kernel("gemm 1", 100, 110, 1000)
    one.collective("AllReduce", 120, 1112, 1000 * milliseconds, 10_000_000)
    one.kernel("gemm 2", 130, 1111, 1000)
    one.collective("AllReduce", 140, 2113, 500 * milliseconds, 10_000_000)
    one.call("cudaStreamWaitEvent", 150)
    one.kernel("adam", 160, 2113 + 500 * milliseconds + 1, 300)
    return one
