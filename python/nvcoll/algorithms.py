"""Algorithms written in Python: the decorator, and the schedules of what it decorates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvcoll._nvcoll import Builder, Schedule


class Algorithm:
    """An algorithm: a function that writes steps with a :class:`nvcoll.Builder`.

    It runs wherever a name does: ``node.all_reduce(arrays, algorithm=ring)``. Schedules are built once per world size,
    aliasing and parameters.
    """

    def __init__(self, collective: str, write: Callable[..., None], parameters: dict[str, Any] | None = None) -> None:
        self.collective = collective
        self.name = write.__name__
        self.__doc__ = write.__doc__
        self._write = write
        self._parameters = parameters or {}
        self._schedules: dict[tuple[int, bool], Schedule] = {}

    def __call__(self, **parameters: Any) -> Algorithm:
        """Returns the algorithm with other parameters: ``two_level(per_node=4)``."""
        return Algorithm(self.collective, self._write, {**self._parameters, **parameters})

    def schedule(self, world_size: int, in_place: bool = True) -> Schedule:
        """Builds the mapped schedule.

        Raises:
            BuildError: the algorithm broke a rule of the builder, at the line of the traceback.
        """
        key = (world_size, in_place)
        if key not in self._schedules:
            builder = Builder(self.collective, world_size, in_place=in_place)
            self._write(builder, **self._parameters)
            # Ranks may write it at once; they share one, and with it the proof.
            self._schedules.setdefault(key, builder.finish(self.name))
        return self._schedules[key]

    def __repr__(self) -> str:
        return f"<nvcoll.Algorithm {self.collective} {self.name}>"


def algorithm(collective: str) -> Callable[[Callable[..., None]], Algorithm]:
    """Makes an algorithm of a function that takes a :class:`nvcoll.Builder`.

    Args:
        collective: what the algorithm does, such as ``"all_reduce"``.

    Example:
        >>> @algorithm("all_reduce")
        ... def star(b):
        ...     ranks = range(b.world_size)
        ...     b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in ranks])
        >>> star.schedule(world_size=4)
        <nvcoll.Schedule all_reduce star, 4 ranks, mapped>
    """
    return lambda write: Algorithm(collective, write)
