"""The exceptions of nvcoll, which the extension raises. Their module is `nvcoll`, where users find them."""


class Error(Exception):
    """Any error of nvcoll. What a program may want to know of a failure are attributes: it need not read messages.

    Ranks are those of the communicator whose call failed; across hosts, those of the job. An error that is about no
    rank, or does not know which, has empty tuples. Errors keep their attributes when they are pickled.

    Attributes:
        ranks: the ranks that the error is about: those that failed, disagree, or are late.
        late: the ranks that a wait missed at its deadline.
        stopped: the late ranks whose process is stopped.
        left: the ranks whose program has returned or left the job.
        host: the name of the host of the rank that failed; None if that is this host.

    Example:
        >>> import nvcoll
        >>> try:
        ...     nvcoll.Node(0)
        ... except nvcoll.Error as error:
        ...     type(error).__name__, error.ranks
        ('InvalidArgument', ())
    """

    ranks: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    host: str | None = None

    def __init__(self, *args: object, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(*args)
        if ranks:
            self.ranks = ranks


class InvalidArgument(Error, ValueError):
    """An argument that cannot be used; the message says which, and what to pass.

    Example:
        >>> import nvcoll
        >>> nvcoll.Node(0)
        Traceback (most recent call last):
            ...
        nvcoll.InvalidArgument: world_size is 0: it must be a whole number, from 1 to 1024
    """


class BuildError(Error):
    """An algorithm broke a rule of the builder; `step` is the number of the step that did, if it is known.

    Example:
        >>> import nvcoll
        >>> nvcoll.Builder("all_reduce", 2).input(2, 0)
        Traceback (most recent call last):
            ...
        nvcoll.BuildError: rank 2 is not one of 0 to 1
    """

    step: int | None = None


class Refuted(Error):
    """A proof failed; `places` names the steps in conflict, `missing` the missing wait.

    Example:
        >>> import nvcoll
        >>> nvcoll.verify(nvcoll.Builder("all_reduce", 2).finish("nothing"))
        Traceback (most recent call last):
            ...
        nvcoll.Refuted: ...
    """

    places: tuple[str, ...] = ()
    missing: str | None = None


class Mismatch(Error):
    """Ranks made different calls; the message names both. `left` names a rank that made none, because it has left.

    Example:
        >>> import numpy as np, nvcoll
        >>> nvcoll.Node(2).run(lambda comm: comm.all_reduce(np.ones(comm.rank + 1)))
        Traceback (most recent call last):
            ...
        nvcoll.Mismatch: ...
    """


class Aborted(Error):
    """Another rank failed; the message and `ranks` name it. `status` is its exit status, if it ended with one.

    Example:
        >>> import nvcoll
        >>> def program(comm):
        ...     if comm.rank == 1:
        ...         comm.abort()
        ...     try:
        ...         comm.barrier()
        ...     except nvcoll.Aborted as error:
        ...         return error.ranks
        >>> nvcoll.Node(2).run(program)
        [(1,), (1,)]
    """

    status: int | None = None


class PeerLost(Aborted):
    """The process of another rank ended without leaving the job.

    `rank` is its rank in the communicator, `pid` its process number, `signal` the signal that killed it or None,
    `status` its exit status or None; what nobody could tell is None. `rank` is None if a whole host is lost.

    Example:
        >>> import nvcoll
        >>> def survive(comm, x):
        ...     try:
        ...         return comm.all_reduce(x)
        ...     except nvcoll.PeerLost as error:
        ...         print(f"rank {error.rank} was killed by signal {error.signal}")
        ...         return comm.shrink().all_reduce(x)
    """

    rank: int | None = None
    pid: int | None = None
    signal: int | None = None


class Timeout(Error, TimeoutError):
    """A deadline passed; the message, `late` and `stopped` name the missing ranks.

    Example:
        >>> import numpy as np, nvcoll
        >>> nvcoll.Node(2).run(lambda comm: comm.recv(np.empty(3), timeout=0.1))
        Traceback (most recent call last):
            ...
        nvcoll.Timeout: ...
    """


class Busy(Error, RuntimeError):
    """The node is in a call of another thread, or in a run of its ranks, or an array is in flight in another call.

    Example:
        >>> import nvcoll
        >>> node = nvcoll.Node(2)
        >>> node.run(lambda comm: node.barrier())
        Traceback (most recent call last):
            ...
        nvcoll.Busy: ...
    """


class Closed(Error, RuntimeError):
    """The peers of a communicator are gone: its run has ended, or the process was forked.

    Example:
        >>> import nvcoll
        >>> comm = nvcoll.Node(2).run(lambda comm: comm)[0]  # the run has ended
        >>> comm.barrier()
        Traceback (most recent call last):
            ...
        nvcoll.Closed: ...
    """


class NoEngine(Error, RuntimeError):
    """This build of nvcoll has no engine, which runs collectives and needs Linux; the message says what needs it.

    Example:
        >>> import nvcoll
        >>> try:
        ...     node = nvcoll.Node(2)
        ... except nvcoll.NoEngine as error:
        ...     print(error)
    """


class DryRunError(Error):
    """A script asks a dry run for something that does not exist there.

    `line` names the line of the script ("train.py:42 main"), or is empty; `ranks` are those that would have to run too.

    Example:
        >>> import nvcoll
        >>> error = nvcoll.DryRunError("rank 0 receives from rank 8", line="train.py:42 main", ranks=(8,))
        >>> error.line, error.ranks
        ('train.py:42 main', (8,))
    """

    def __init__(self, message: str, *, line: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.line, self.ranks = line, ranks


for _each in (Error, *Error.__subclasses__(), PeerLost):
    _each.__module__ = "nvcoll"
