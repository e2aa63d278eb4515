"""Recordings by hand, for tests of what the parent of a dry run makes of them."""

import numpy as np

from nvcoll.dryrun.wire.rank_recording import Group, Memory, Op, RankRecording
from nvcoll.dryrun.wire.virtual_gpu import RECORD, Kind

BF16, SUM_IN_FP32 = 14, 68
BFLOAT16 = "bfloat16"
MEMORY = Memory(8 << 30, 9 << 30, (("parameters", 8 << 30),), ("m.py:3 f", "t.py:1 <module>"))


class Log:
    """A log that grows: names and operators are numbered as they come."""

    def __init__(self):
        self.rows, self.names, self.ops, self.lines = [], [], [Op("")], [""]

    def add(self, kind, stream=0, name=None, op=0, *args):
        """Appends a record."""
        index = 0
        if name is not None:
            if name not in self.names:
                self.names.append(name)
            index = self.names.index(name)
        self.rows.append((int(kind), 0, stream, index, op, [*args, *[0] * (6 - len(args))]))

    def op(self, name, nbytes=0, *inputs, line="", **more):
        """Returns the number of a new operator."""
        if line not in self.lines:
            self.lines.append(line)
        shown = tuple((tuple(shape), dtype) for shape, dtype in inputs)
        self.ops.append(Op(name, bytes=nbytes, inputs=shown, line=self.lines.index(line), **more))
        return len(self.ops) - 1

    def launch(self, op, stream=7, count=1):
        """Appends launches of an operator."""
        for _ in range(count):
            self.add(Kind.LAUNCH, stream, "kernel", op, 1, 128, 0)

    def gemm(self, m, n, k, stream=7, op=0, batch=1, compute=SUM_IN_FP32, dtype=BF16):
        """Appends a matrix product."""
        self.add(Kind.GEMM, stream, "cublasGemmEx", op, m, n, k, batch, 0, dtype | dtype << 8 | compute << 32)

    def call(self, name, communicator, nbytes, stream=9, peer=0, together=0, op=0):
        """Appends a call of NCCL."""
        self.add(Kind.COLLECTIVE, stream, name, op, nbytes // 2, 9, communicator, peer, together, nbytes)

    def recording(self, rank=0, world_size=16, groups=None, **more):
        """Returns the recording."""
        groups = {1: Group("default_pg", tuple(range(world_size)))} if groups is None else groups
        memory = more.pop("memory", MEMORY)
        return RankRecording(
            rank,
            world_size,
            np.array(self.rows, RECORD),
            self.names or ["none"],
            self.ops,
            self.lines,
            groups,
            memory,
            **more,
        )


def layer(rank=0, world_size=16, groups=None, **more):
    """A step of one layer with FSDP: gathers, an embedding, attention, products, and the reduction of gradients."""
    log = Log()
    log.call("all_gather", 1, 4096)
    log.add(Kind.EVENT_RECORD, 9, None, 0, 17)
    log.add(Kind.STREAM_WAIT, 7, None, 0, 17)
    tokens = log.op("aten::embedding", 100, ((32000, 64), BFLOAT16), ((2, 512), "int64"), line="t.py:4 forward")
    log.launch(tokens)
    mm = log.op("aten::mm", 1000, ((1024, 64), BFLOAT16), ((64, 64), BFLOAT16), line="t.py:5 forward")
    log.gemm(1024, 64, 64, op=mm)
    shape = ((2, 4, 512, 16), BFLOAT16)
    sdpa = "aten::_scaled_dot_product_flash_attention"
    log.launch(log.op(sdpa, 3000, shape, shape, shape, line="t.py:6 forward", is_causal=True))
    add = log.op("aten::add", 600, ((2, 512, 64), BFLOAT16), line="t.py:7 forward")
    log.launch(add, count=3)
    back = log.op("aten::mm", 1000, is_backward=True, line="t.py:5 forward")
    log.gemm(64, 64, 1024, op=back)
    log.gemm(1024, 64, 64, op=back)
    log.call("reduce_scatter", 1, 8192)
    log.add(Kind.HOST_WAIT, 9, None, 0, 1)
    return log.recording(rank, world_size, groups, host_ops=50, **more)


def alone(rank=0, world_size=16):
    """A step of a script that calls no torch.distributed: an embedding and a product."""
    log = Log()
    log.launch(log.op("aten::embedding", 100, ((32000, 64), BFLOAT16), ((2, 512), "int64"), line="t.py:4 forward"))
    log.gemm(1024, 64, 64, op=log.op("aten::mm", 1000, ((1024, 64), BFLOAT16), ((64, 64), BFLOAT16)))
    return log.recording(rank, world_size, {}, is_alone=True)
