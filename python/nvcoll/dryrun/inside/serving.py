"""A model server in a dry run: its iterations are the steps, as its scheduler tells them.

::

    begins(prefill)   begins(decode)   begins(decode)   begins(decode)   begins(...)
    |--- iteration ---|--- iteration --|--- iteration --|--- iteration --|
          largest kept                                    the wanted one: kept, the end

What a server needs beside the libraries of NVIDIA is in one file per server (`inside.servers`). The largest prefill and
the last decode iteration in a row of as many sequences are kept; a script that ends before leaves what it had.
"""

from __future__ import annotations

from collections.abc import Callable

from nvcoll.dryrun.inside.steps import Steps
from nvcoll.dryrun.wire.served import Served


class Iterations:
    """The iterations of a server.

    Args:
        wanted: the number of decode iterations of as many sequences in a row; the last one counts.
        steps: the steps, whose positions iterations are.
        begin: begins to record an iteration.
        keep: keeps what was recorded.
        finish: is called after the last wanted iteration.
        last: the sequences of the last requests, if requests come in turn: only iterations of all requests of a turn
            are kept, and those of fewer than the last are not the end.
    """

    def __init__(
        self,
        wanted: int,
        steps: Steps,
        begin: Callable[[Served], object],
        keep: Callable[[Served], object],
        finish: Callable[[], object],
        last: int = 0,
    ) -> None:
        self.wanted, self._last, self._steps, self._begin, self._keep, self._finish = (
            wanted,
            last,
            steps,
            begin,
            keep,
            finish,
        )
        self._open: Served | None = None
        self._largest, self._in_a_row, self._sequences, self._turn = 0, 0, 0, 0

    def turn(self, sequences: int) -> None:
        """Notes that the server gets requests now: what it did before, to warm up, does not count."""
        self._largest, self._in_a_row, self._turn = 0, 0, sequences

    def begins(self, served: Served | None) -> None:
        """Ends the iteration before, and begins another; None: the server has nothing to do."""
        self._steps.mark()
        if self._open is not None:
            self._ended(self._open)
        self._open = served
        if served is not None:
            self._begin(served)

    def _ended(self, served: Served) -> None:
        if self._last and len(served.new) != self._turn:
            return
        if served.kind == "prefill":
            self._in_a_row = 0
            if sum(served.new) > self._largest:
                self._largest = sum(served.new)
                self._keep(served)
            return
        self._in_a_row = self._in_a_row + 1 if self._sequences == len(served.new) else 1
        self._sequences = len(served.new)
        self._keep(served)
        if self._in_a_row >= self.wanted and self._sequences >= self._last:
            self._finish()
