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
    """An argument that cannot be used; the message says which, and what to pass."""


class BuildError(Error):
    """An algorithm broke a rule of the builder; `step` is the number of the step that did, if it is known."""

    step: int | None = None


class Refuted(Error):
    """A proof failed; `places` names the steps in conflict, `missing` the missing wait."""

    places: tuple[str, ...] = ()
    missing: str | None = None


class Mismatch(Error):
    """Ranks made different calls; the message names both. `left` names a rank that made none, because it has left."""


class Aborted(Error):
    """Another rank failed; the message and `ranks` name it. `status` is its exit status, if it ended with one."""

    status: int | None = None


class PeerLost(Aborted):
    """The process of another rank ended without leaving the job.

    `rank` is its rank in the communicator, `pid` its process number, `signal` the signal that killed it or None,
    `status` its exit status or None; what nobody could tell is None. `rank` is None if a whole host is lost.
    """

    rank: int | None = None
    pid: int | None = None
    signal: int | None = None


class Timeout(Error, TimeoutError):
    """A deadline passed; the message, `late` and `stopped` name the missing ranks."""


class Busy(Error, RuntimeError):
    """The node is in a call of another thread, or in a run of its ranks, or an array is in flight in another call."""


class Closed(Error, RuntimeError):
    """The peers of a communicator are gone: its run has ended, or the process was forked."""


class DryRunError(Error):
    """A script asks a dry run for something that does not exist there.

    `line` names the line of the script ("train.py:42 main"), or is empty; `ranks` are those that would have to run too.
    """

    def __init__(self, message: str, *, line: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.line, self.ranks = line, ranks


for _each in (Error, *Error.__subclasses__(), PeerLost):
    _each.__module__ = "nvcoll"
