"""What a model server gets when it is prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvcoll.dryrun.inside.peers import Peers
from nvcoll.dryrun.inside.serving import Iterations

MOST_TOKENS = 64
"""Tokens that a server makes of each request. Chosen: the iterations that count are among the first ones."""


@dataclass(frozen=True)
class Given:
    """What a model server gets.

    Attributes:
        iterations: gets the iterations.
        peers: gets the groups.
        world_size: the number of ranks.
        requests: how many requests a server gets at once that waits for them, and the tokens of each prompt; perhaps
            again, when these have ended.
        assume: notes an assumption.
        stand_in: returns a function that launches a kernel by its name, in the place of one that nvcc would compile.
    """

    iterations: Iterations
    peers: Peers
    world_size: int
    requests: Sequence[int]
    assume: Callable[[str], None]
    stand_in: Callable[[str], Callable[..., object]]

    def prompts(self) -> Iterator[tuple[list[list[int]], int]]:
        """Yields the prompts that a waiting server gets at once, and the tokens that it makes of each."""
        pairs = list(zip(self.requests[::2], self.requests[1::2], strict=True))
        most = MOST_TOKENS if len(pairs) == 1 else self.iterations.wanted + 2
        before = 0
        for many, tokens in pairs:  # prompts that begin alike would share their keys and values
            self.iterations.turn(many)
            yield [[(before + nth + each) % 997 for each in range(tokens)] for nth in range(many)], most
            before += many

    def without_files(self, arguments: Any, server: str, model: str, tokenizer: str | None) -> None:
        """Makes a server run without weights, and without a tokenizer that is not there."""
        if arguments.load_format == "auto":
            arguments.load_format = "dummy"
            self.assume(f"{server} loads no weights: load_format dummy")
        folder = Path(model)
        if folder.is_dir() and tokenizer is None and not any(folder.glob("tokenizer*")):
            arguments.skip_tokenizer_init = True
