"""What a rank of a recorded step did, counted by kind."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counted:
    """Sums of one rank of a recorded step.

    Attributes:
        flops: FLOPs of products.
        calls: number of collectives by pattern, and size and stride of their group.
        bytes: their bytes, by the same keys.
        sends: number of messages that the rank sends.
        sent_bytes: their bytes.
        names: launches by name of the operator.
        peak: bytes that the allocator had handed out at the peak.
        reserved: bytes that it had reserved.
    """

    flops: int = 0
    calls: Counter = field(default_factory=Counter)
    bytes: Counter = field(default_factory=Counter)
    sends: int = 0
    sent_bytes: int = 0
    names: Counter = field(default_factory=Counter)
    peak: int = 0
    reserved: int = 0

    @classmethod
    def of(cls, step, rank):
        """Counts one rank.

        Args:
            step: `nvcoll.step/1` as a dict.
            rank: number of the rank; its `ranks` entry must be there.
        """
        recorded = next(one for one in step["streams"]["ranks"] if one["rank"] == rank)
        memory = recorded["memory"]["allocator"]
        counted = cls(peak=memory["allocated"], reserved=memory["reserved"])
        for op in recorded["issued"]:
            counted.take(op, step["groups"])
        return counted

    def take(self, op, groups):
        """Adds an operation."""
        times = op.get("count", 1)
        if op["work"] == "gemm":
            self.flops += 2 * op["m"] * op["n"] * op["k"] * op.get("batch", 1) * times
        elif op["work"] == "collective":
            group = groups[op["group"]]
            key = op["pattern"], group["size"], group["stride"]
            self.calls[key] += times
            self.bytes[key] += op["bytes"] * times
        elif op.get("way") == "send" and op["bytes"]:
            self.sends += times
            self.sent_bytes += op["bytes"] * times
        self.names[op.get("name", "")] += times
