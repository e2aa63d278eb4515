"""An extension of griffe for mkdocs.yml: docstrings and overloads as the site shows them.

Examples, from ``>>>`` to an empty line, are code; a section ``Example`` is one of examples; roles of Sphinx are names.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_CHANGES = (
    (re.compile(r"^Example:$", re.MULTILINE), "Examples:"),
    (re.compile(r"^(>>> .*(?:\n.+)*)", re.MULTILINE), r"```pycon\n\1\n```"),
    (re.compile(r":\w+:`~?([^`]+)`"), r"`\1`"),
)


class Docstrings(griffe.Extension):
    """Changes the docstring of every object, and keeps methods of stubs that have overloads only."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Makes a method of overloads: the one with the docstring, which has the others."""
        for name, overloads in cls.overloads.items():
            if overloads and name not in cls.members:
                method = next((one for one in overloads if one.docstring), overloads[0])
                method.overloads = list(overloads)
                cls.set_member(name, method)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes one docstring."""
        if obj.docstring:
            for pattern, shown in _CHANGES:
                obj.docstring.value = pattern.sub(shown, obj.docstring.value)
