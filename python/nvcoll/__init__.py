"""nvcoll: a multi-GPU node in a pip wheel.

>>> import functools, numpy as np, nvcoll
>>> grads = [np.random.rand(1000).astype("f4") for _ in range(8)]
>>> expected = functools.reduce(np.add, grads)
>>> with nvcoll.Node(8) as node:
...     _ = node.all_reduce(grads)
>>> all(np.array_equal(g, expected) for g in grads)
True

The package has rooms. A room uses only rooms above it, and no file uses itself through others::

    text        numbers and tables for people
    draw        pictures of schedules, machines and timelines
    authoring   algorithms that users write
    cost        prices, comparisons, reports
    training    steps of training: layouts, their time and memory
    traces      recorded steps from traces of other tools
    hosts       communicators of ranks on several hosts
    ranks       nodes and jobs, and the processes of ranks
    dryrun      a script of torch on virtual GPUs
    serving     model servers: layouts, what requests see of them
    check       logs of benchmarks, beside predictions
    testing     runs with faults
    torch       the backend of torch.distributed
    cli         the command line
"""

from nvcoll._nvcoll import (
    Aborted,
    Builder,
    BuildError,
    Busy,
    Closed,
    Communicator,
    CriticalPiece,
    Error,
    Fabric,
    Group,
    InvalidArgument,
    Message,
    Mismatch,
    NcclCandidate,
    NcclEstimate,
    Network,
    NoEngine,
    PeerLost,
    Plan,
    Prediction,
    PremulSum,
    Proof,
    Refuted,
    Schedule,
    Step,
    Timeline,
    Timeout,
    View,
    Work,
    __version__,
    cluster,
    fabric,
    machines,
    premul_sum,
    schedule,
    verify,
)
from nvcoll.authoring.algorithms import Algorithm, algorithm
from nvcoll.cost.comparison import Comparison, ComparisonRow, compare
from nvcoll.cost.prediction import predict
from nvcoll.cost.price import Price, PricedCalls
from nvcoll.cost.report import CallReport
from nvcoll.errors import DryRunError
from nvcoll.ranks import copies as _copies  # noqa: F401
from nvcoll.ranks.membership import finalize, init, step
from nvcoll.ranks.node import Node
from nvcoll.ranks.spawning import spawn

__all__ = [
    "Aborted",
    "Algorithm",
    "BuildError",
    "Builder",
    "Busy",
    "CallReport",
    "Closed",
    "Communicator",
    "Comparison",
    "ComparisonRow",
    "CriticalPiece",
    "DryRunError",
    "Error",
    "Fabric",
    "Group",
    "InvalidArgument",
    "Message",
    "Mismatch",
    "NcclCandidate",
    "NcclEstimate",
    "Network",
    "NoEngine",
    "Node",
    "PeerLost",
    "Plan",
    "Prediction",
    "PremulSum",
    "Price",
    "PricedCalls",
    "Proof",
    "Refuted",
    "Schedule",
    "Step",
    "Timeline",
    "Timeout",
    "View",
    "Work",
    "__version__",
    "algorithm",
    "cluster",
    "compare",
    "fabric",
    "finalize",
    "init",
    "machines",
    "predict",
    "premul_sum",
    "schedule",
    "spawn",
    "step",
    "verify",
]
