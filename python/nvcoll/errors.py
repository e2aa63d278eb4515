"""The exceptions of nvcoll, which the extension raises. Their module is `nvcoll`, where users find them."""


class Error(Exception):
    """Any error of nvcoll; `host` names the host of the rank that failed, and is None if that is this host."""

    host: str | None = None


class InvalidArgument(Error, ValueError):
    """An argument that cannot be used; the message says which, and what to pass."""


class BuildError(Error):
    """An algorithm broke a rule of the builder."""


class Refuted(Error):
    """A proof failed; `places` names the steps in conflict, `missing` the missing wait."""

    places: tuple[str, ...] = ()
    missing: str | None = None


class Mismatch(Error):
    """Ranks made different calls; the message names both."""


class Aborted(Error):
    """Another rank failed; the message names it."""


class PeerLost(Aborted):
    """The process of another rank ended without leaving the job.

    `rank` is its rank in the communicator, `pid` its process number, `signal` the signal that killed it or None,
    `status` its exit status or None; what nobody could tell is None.
    """


class Timeout(Error, TimeoutError):
    """A deadline passed; the message names the missing ranks."""


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
