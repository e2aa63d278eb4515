"""Lets torchvision read what `public_scripts.py` made: its CIFAR10 takes only files with the real checksums."""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType


class _Unchecked(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Finds torchvision's module of CIFAR, and no other; it has no check of files."""
        if name != "torchvision.datasets.cifar":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if found is None or found.loader is None:
            return None
        execute = found.loader.exec_module

        def unchecked(module: ModuleType) -> None:
            execute(module)
            module.check_integrity = lambda *_: True  # type: ignore[attr-defined]

        found.loader.exec_module = unchecked  # type: ignore[method-assign]
        return found


sys.meta_path.insert(0, _Unchecked())
