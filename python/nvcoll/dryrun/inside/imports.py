"""What happens before or after a module is first imported: importing it now might cost seconds."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class OnFirstUse(MetaPathFinder):
    """Calls a function before a module is first imported."""

    def __init__(self, module: str, install: Callable[[], None]) -> None:
        self._module, self._install = module, install

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Finds nothing; calls the function before the module is looked for."""
        if fullname == self._module:
            sys.meta_path.remove(self)
            self._install()


class AfterImport(MetaPathFinder):
    """Calls a function with a module when it has run, before its importer gets it."""

    def __init__(self, module: str, change: Callable[[Any], object]) -> None:
        self._module, self._change = module, change

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Finds the module as others find it."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executing(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = executing  # type: ignore[method-assign]
        return spec
