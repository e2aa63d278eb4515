"""How numbers, ranks and expressions are written in sentences, and text in markup."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence

EXPRESSIONS = 3
"""The number of chunks whose expressions are shown if they differ. Chosen."""

EXPRESSION_LETTERS = 60
"""The number of characters that are shown of each end of a long expression. Chosen."""

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, not even as a reference (XML 1.0, production 2)."""


def json_text(schema: str, fields: Mapping[str, object]) -> str:
    """Returns an object as JSON, whose key ``schema`` names its JSON Schema.

    Raises:
        ValueError: a number is NaN or infinite, which JSON lacks.
    """
    return json.dumps({"schema": schema, **fields}, indent=2, allow_nan=False)


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: ``1 rank``, ``4 ranks``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def sized(nbytes: int) -> str:
    """Returns a number of bytes for reading: ``64 KiB``; four digits."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


def number(value: float) -> str:
    """Returns a number with three digits, zeros at its end too, or all before the point: ``3.80``, ``1,226``."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def duration(*seconds: float) -> str:
    """Returns a time, or the ends of an interval, with three digits in the unit of the last: ``12.8 to 17.6 ms``."""
    scale, unit = next((row for row in ((1.0, "s"), (1e-3, "ms")) if seconds[-1] >= row[0]), (1e-6, "us"))
    return f"{' to '.join(number(time / scale) for time in seconds)} {unit}"


def shortened(expression: str) -> str:
    """Returns the two ends of an expression that is too long to read."""
    if len(expression) <= 3 * EXPRESSION_LETTERS:
        return expression
    return f"(… {expression.lstrip('(')[:EXPRESSION_LETTERS]} … {expression[-EXPRESSION_LETTERS:]}"


def escaped(text: str) -> str:
    """Returns text as it must stand in HTML and XML, between tags or in quotes."""
    return html.escape(NOT_IN_XML.sub("\ufffd", text))


def printable(text: str) -> str:
    """Returns text of others as it may reach a terminal: characters that steer one are written as escapes of Python."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def listed(ranks: Sequence[int]) -> str:
    """Returns some ranks as words: ``rank 3``, ``ranks 0, 1 and 3``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
