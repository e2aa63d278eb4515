"""``nvcoll serve --sweep``: which options it varies, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nvcoll._nvcoll import InvalidArgument
from nvcoll.cli.plan.given import configured
from nvcoll.training import hub


def weights(name: str) -> str:
    """Returns our word for a format of weights, as int4 for awq."""
    return str(hub.TABLE["weights"].get(name, name))


DRAFTS: Final = {**dict.fromkeys(("eagle", "eagle3", "mtp", "nextn"), "head"), "lookup": "ngram"}
"""What servers call the ways to draft, and what `ServeOptions` calls them."""


def drafter(name: str | None) -> str | Mapping[str, Any] | None:
    """Returns what drafts: a word of `ServeOptions`, also as servers have it, or a model."""
    word = DRAFTS.get(name or "", name)
    return word if word in (None, "head", "ngram") else configured([word], [])[0]


SWEPT: Final[Mapping[str, Callable[[str], Any]]] = {
    **{"concurrency": float, "rate": float, "in": float, "out": float, "n": int, "precision": weights, "kv-cache": str},
    **{"server": str, "speculate": int, "accept": float, "draft": drafter},
}
"""What a sweep varies: names of options, and what their values are."""

FIELDS: Final = {"in": "input", "out": "output", "kv-cache": "cache"}
"""The names of `ServeOptions` for options that are called otherwise."""


def swept(given: Sequence[str]) -> dict[str, list[Any]]:
    """Reads ``--sweep NAME=VALUE,VALUE``.

    Raises:
        InvalidArgument: nothing is varied, or a value is none.
    """
    found = {}
    for one in given:
        name, _, values = one.partition("=")
        name = name.strip().lstrip("-")
        if name not in SWEPT or not values:
            raise InvalidArgument(f"--sweep {one}: pass NAME=VALUE,VALUE with a name of {', '.join(SWEPT)}")
        try:
            found[FIELDS.get(name, name)] = [SWEPT[name](value) for value in values.split(",")]
        except ValueError:
            raise InvalidArgument(f"--sweep {one}: `{name}` takes numbers, as {name}=1,4,16") from None
    return found
