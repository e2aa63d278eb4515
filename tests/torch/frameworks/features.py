"""The decorator of a feature, and the features of a file as its text tells them: pytest collects them without torch."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the files with features are."""


@dataclass(frozen=True)
class Rank:
    """What a feature knows of the process that runs it.

    Attributes:
        rank: of the process.
        world_size: the number of processes.
        backend: the name of torch's backend.
        folder: an empty folder that the processes share.
    """

    rank: int
    world_size: int
    backend: str
    folder: Path


@dataclass(frozen=True)
class Feature:
    """What pytest knows of a feature. `feature` documents the arguments.

    Attributes:
        file: the name of its file, without the ending.
        name: of its function.
    """

    file: str
    name: str
    world_sizes: tuple[int, ...] = (2, 4)
    needs: str = ""
    makes_group: bool = False

    @property
    def full_name(self) -> str:
        """The name with that of the file: ``ddp.plain``."""
        return f"{self.file}.{self.name}"


def feature(**_told: object) -> Callable[[Callable[[Rank], None]], Callable[[Rank], None]]:
    """Marks a function as a feature.

    Args:
        world_sizes: the numbers of processes that run it. Default: 2 and 4.
        needs: the package that it imports, beside torch.
        makes_group: whether it makes the default process group. If not, it finds one.
    """
    return lambda function: function


def features() -> list[Feature]:
    """Returns the features of all files."""
    return [found for path in sorted(FOLDER.glob("*.py")) for found in _features_of(path)]


def _features_of(path: Path) -> list[Feature]:
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "feature":
                    told = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
                    found.append(Feature(path.stem, node.name, **told))
    return found
