"""An output that ranks share line by line: their lines are not torn, and each says which rank wrote it.

A rank's text comes in pieces that end anywhere. Whole lines are passed on at once; the rest waits for its end::

    piece of rank 2    "one\\ntw"      [2] one
    piece of rank 0    "zero\\n"       [0] zero
    piece of rank 2    "o\\n"          [2] two

A rest does not wait for ever: a question to the user has no end of line, and a bar of progress has none for minutes.
After `PATIENCE_S`, or if it grows too long, the rest is passed on as it is, and its line stays open. What the same rank
writes next continues the line; the line of another rank begins on a new one. So bytes are never changed but by prefixes
and by ends of lines between two ranks: with one writing rank and without prefixes, the output is that of the rank.
"""

from __future__ import annotations

import math
import os
import select
import time

PATIENCE_S = 0.2
"""How long the beginning of a line waits for its end. Chosen: programs write a line at once, and nobody who waits for a
question notices."""

LONGEST_BYTES = 1 << 20
"""The longest beginning of a line that waits for its end. Chosen."""


class Lines:
    """An output of this process that ranks share.

    Attributes:
        error: why nothing can be written any more; None: it can.
    """

    def __init__(self, descriptor: int, *, is_prefixed: bool) -> None:
        """
        Args:
            descriptor: the output.
            is_prefixed: each line begins with its rank.
        """
        self.error: OSError | None = None
        self._descriptor = descriptor
        self._is_prefixed = is_prefixed
        self._rests: dict[int, bytearray] = {}
        self._since: dict[int, float] = {}
        self._open: int | None = None

    def take(self, rank: int, piece: bytes) -> None:
        """Takes what a rank has written; passes the lines on that are whole."""
        rest = self._rests.setdefault(rank, bytearray())
        rest += piece
        end = len(rest) if len(rest) > LONGEST_BYTES else rest.rfind(b"\n") + 1
        if end:
            self._write(rank, bytes(rest[:end]))
            del rest[:end]
            self._since.pop(rank, None)
        if rest:
            self._since.setdefault(rank, time.monotonic())

    def due(self) -> float:
        """Returns when the next rest has waited long enough, by the monotonic clock."""
        return min(self._since.values(), default=math.inf) + PATIENCE_S

    def pass_on_rests(self, *, all_of_them: bool = False) -> None:
        """Passes the beginnings of lines on that have waited long enough, or all."""
        latest = math.inf if all_of_them else time.monotonic() - PATIENCE_S
        for rank in sorted(rank for rank, since in self._since.items() if since <= latest):
            del self._since[rank]
            self._write(rank, bytes(self._rests.pop(rank)))

    def end(self) -> None:
        """Passes everything on; with prefixes, the last line has an end too."""
        self.pass_on_rests(all_of_them=True)
        if self._is_prefixed:
            self.end_line()

    def end_line(self) -> None:
        """Ends an open line: what is written next by another hand begins on a new one."""
        if self._open is not None:
            self._put(b"\n")
            self._open = None

    def _write(self, rank: int, text: bytes) -> None:
        """Writes lines of a rank. The first may continue an open line, and the last may stay open."""
        prefix = b"[%d] " % rank if self._is_prefixed else b""
        begin = b"" if self._open == rank else prefix if self._open is None else b"\n" + prefix
        self._put(begin + text[:-1].replace(b"\n", b"\n" + prefix) + text[-1:])
        self._open = None if text.endswith(b"\n") else rank

    def _put(self, text: bytes) -> None:
        left = memoryview(text)
        while left and self.error is None:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # a rank has made the terminal, which it shares, non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                self.error = error
