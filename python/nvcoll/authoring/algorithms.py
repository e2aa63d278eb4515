"""Algorithms written in Python: the decorator, and the schedules of decorated functions."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import cast

from nvcoll._nvcoll import Builder, BuildError, InvalidArgument, Schedule, collective_spelled, collectives
from nvcoll.authoring.parameters import Parameters


class Algorithm:
    """An algorithm: a function that writes steps with a :class:`nvcoll.Builder`.

    It can replace a name: ``node.all_reduce(arrays, algorithm=ring)``, also in a composition. A schedule and its proof
    are made once per world size, aliasing and parameters; an equal ``two_level(per_node=4)`` reuses them.

    Example:
        >>> import nvcoll
        >>> @nvcoll.algorithm("all_gather")
        ... def direct(b):
        ...     for r in range(b.world_size):
        ...         for c in range(b.world_size):
        ...             b.copy(b.input(c, c), into=b.output(r, c))
        >>> direct.schedule(world_size=2).algorithm
        'direct'
    """

    def __init__(self, collective: str, write: Callable[..., object]) -> None:
        can_be_in_place = {row.name: row.can_be_in_place for row in collectives()}
        collective = collective_spelled(collective) or collective
        if collective not in can_be_in_place:
            raise InvalidArgument(f"no collective is called `{collective}`: choose from {', '.join(can_be_in_place)}")
        self._can_be_in_place = can_be_in_place[collective]
        self.collective = collective
        self.__doc__ = write.__doc__
        self._write = write
        self._parameters = Parameters.of(write)
        self._given: dict[str, object] = {}
        self._schedules: dict[tuple[str, int, bool, int], Schedule] = {}  # of all parameterisations

    def __copy__(self) -> Algorithm:
        """Itself: it does not change."""
        return self

    def __deepcopy__(self, _known: object) -> Algorithm:
        """Itself: it does not change."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the place of the function, as functions are pickled."""
        if "<locals>" in self._write.__qualname__:
            raise TypeError(f"cannot pickle {self.name}, which stands in a function: write it at the top of a module")
        return _placed, (self._write.__module__, self._write.__qualname__, self._given)

    @property
    def name(self) -> str:
        """The name, with all parameters: ``ring``, ``two_level(per_node=8)``."""
        return self._parameters.call(self._given)

    def __call__(self, *values: object, **parameters: object) -> Algorithm:
        """Returns the algorithm with other parameters: ``two_level(per_node=4)``.

        Raises:
            InvalidArgument: the algorithm has no such parameter, or the value is of another kind than the default.
        """
        if values:
            names = ", ".join(self._parameters.declared) or "it has none"
            raise InvalidArgument(f"parameters of {self._parameters.function} are given by name: {names}")
        other = Algorithm(self.collective, self._write)
        other._schedules = self._schedules
        other._given = self._parameters.checked({**self._given, **parameters})
        return other

    def schedule(self, world_size: int, in_place: bool | None = None, root: int = 0) -> Schedule:
        """Builds the mapped schedule. By default it is in place, if the collective can be in place.

        Errors of single steps are raised while the function runs. Other errors need all steps (a step that reads memory
        without a value). The function then runs once more, and the error is raised at the line of that step.

        Raises:
            BuildError: the algorithm broke a rule of the builder, at the line of the traceback.
            InvalidArgument: a parameter without a default is missing.
        """
        in_place = self._can_be_in_place if in_place is None else in_place
        key = (self.name, world_size, in_place, root)
        if key not in self._schedules:
            # Ranks may write it at once; they share one, and with it the proof.
            self._schedules.setdefault(key, self._built(*key[1:]))
        return self._schedules[key]

    def write(self, builder: Builder) -> None:
        """Writes the steps of the algorithm with a builder. Composition calls this for every group of ranks.

        Raises:
            InvalidArgument: a parameter without a default is missing.
        """
        self._write(builder, **self._parameters.complete(self._given))

    def _built(self, world_size: int, in_place: bool, root: int) -> Schedule:
        builder = Builder(self.collective, world_size, root=root, in_place=in_place)
        self.write(builder)
        try:
            return builder.finish(self.name)
        except BuildError as error:
            late = error
        if late.step is not None:
            again = Builder(self.collective, world_size, root=root, in_place=in_place)
            again.fail_at(late.step, str(late))
            try:
                self.write(again)
            except BuildError as error:
                error.step = late.step
                raise
        raise late

    def __repr__(self) -> str:
        return f"<nvcoll.Algorithm {self.collective} {self.name}>"


def algorithm(collective: str) -> Callable[[Callable[..., object]], Algorithm]:
    """Makes an algorithm from a function whose first parameter is a :class:`nvcoll.Builder`.

    Further parameters of the function are parameters of the algorithm: numbers, True, False, None, text, or tuples.

    Args:
        collective: the collective of the algorithm, such as ``"all_reduce"``.

    Raises:
        InvalidArgument: there is no such collective, or the function cannot be an algorithm.

    Example:
        >>> import nvcoll
        >>> @nvcoll.algorithm("all_reduce")
        ... def star(b):
        ...     ranks = range(b.world_size)
        ...     b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in ranks])
        >>> star.schedule(world_size=4)
        <nvcoll.Schedule all_reduce star, 4 ranks, mapped>
    """
    if not isinstance(collective, str):
        raise InvalidArgument('name the collective: write @nvcoll.algorithm("all_reduce")')
    return lambda write: Algorithm(collective, write)


def _placed(module: str, name: str, given: dict[str, object]) -> Algorithm:
    """Returns the algorithm of a function in a module."""
    found = functools.reduce(getattr, name.split("."), cast(object, importlib.import_module(module)))
    assert isinstance(found, Algorithm)
    return found(**given) if given else found
