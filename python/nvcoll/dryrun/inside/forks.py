"""Forks of one process that has imported torch: ranks that run at the same time, and share the memory of the import.

::

    python -m nvcoll.dryrun.inside.forks PIPE IMPORTED MODULE SPEC,OUTPUT,ERRORS...

It imports a module, and forks a process for each spec before anything of the script runs. A fork is as a process that
the dry run starts: the first of a session, with its own output, running ``MODULE --spec SPEC``; it ends with this
process. This one sends their ids through the pipe, and collects none, so that the dry run can see how they ended.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import sys
import warnings
from importlib import import_module
from multiprocessing.connection import Connection

from nvcoll.dryrun.wire import stacks
from nvcoll.ranks.bound import end_with_parent


def main(pipe: int, imported: str, module: str, ranks: list[str]) -> None:
    """Forks the ranks, and waits for its own end; in a fork, returns when the module has run."""
    import_module(imported)
    gc.collect()
    gc.freeze()  # a later collection would write to all pages that hold objects
    signal.signal(stacks.SIGNAL, signal.SIG_IGN)  # the first rank may be asked for its stack before its id is known
    rows = [(spec, int(out), int(errors)) for spec, out, errors in (rank.rsplit(",", 2) for rank in ranks)]
    server, forks = os.getpid(), []
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # numpy handles forks
    for spec, out, errors in rows:
        if (process := os.fork()) == 0:
            os.setsid()
            end_with_parent(server)
            os.dup2(out, 1)
            os.dup2(errors, 2)
            for descriptor in (pipe, *(each for row in rows for each in row[1:])):
                os.close(descriptor)
            sys.argv[1:] = ["--spec", spec]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return
        forks.append(process)
    Connection(pipe, readable=False).send(forks)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
