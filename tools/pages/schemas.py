"""Writes docs/reference/json.md from the JSON Schemas: ``tools/pages/schemas.py > docs/reference/json.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import nvcoll.cli
from nvcoll.cli import formats
from nvcoll.training import report

STEPS = ("plan", "dryrun", "price")
"""The commands about training steps, which print one kind of object."""

LINKS = {
    "part of the time": "../train/plan.md#parts-of-the-time",
    "the training step": "training-step.md",
    "operations of a training step": "training-step.md#operations",
    "groups of ranks of a training step": "training-step.md#groups",
    "nvcoll dryrun": "../train/dryrun.md",
    "buckets do not overlap": "../train/dryrun.md#what-happens",
    "lines of NCCL_DEBUG=INFO": "../predict/check.md#what-it-reads",
    "order of the additions": "../run/reproducibility.md#three-orders",
}
"""Words of descriptions, and the section that explains them."""

PAGE = """\
# JSON output

With `--json` every command prints one JSON object. Its key `schema` names the command and a version:

```
$ nvcoll predict all_reduce -b 1M --on hgx-h100 --json | python -c "import json, sys; print(json.load(sys.stdin)['predictions'][0]['time_us'])"
```

| subject | rule |
|---|---|
| schema | `nvcoll COMMAND --schema` prints the [JSON Schema](https://json-schema.org) (draft 2020-12) of the object, for validators and code generators. It has the meanings on this page |
| later versions | may add keys. They will not remove a key or change its meaning |
| no answer | the value is null |
| names | the same thing has the same key in all commands about collectives: `machine`, `world_size` (number of ranks or GPUs), `nbytes`. Python has the same names and units |
| units | the end of a key: `time_us`, `link_gbps`. Times of calls are microseconds (`_us`), as in nccl-tests. Times of steps and of their parts are seconds (`seconds`, `_s`). Rates are GB/s (10^9 bytes) |
| places | `logs[].rows[]`: each object of the list `rows`, in each object of the list `logs`. `times[NAME]`: the object of each name in `times` |
| CSV | [`--csv`](commands.md#csv) prints the same as a table |

<!-- Written by `python tools/pages/schemas.py > docs/reference/json.md`; do not edit: the schemas have the words. -->

{sections}
"""

Schema = dict[str, Any]


def resolved(schema: Schema, part: Schema) -> Schema:
    """Returns a part of a schema with the definition that it names; of alternatives, the first."""
    if "anyOf" in part:
        part = {**part["anyOf"][0], **part}
    if "$ref" in part:
        return {**resolved(schema, schema["$defs"][part["$ref"].rpartition("/")[2]]), **part}
    return part


def tables(schema: Schema, part: Schema, place: str = "") -> Iterator[tuple[str, dict[str, Schema]]]:
    """Yields the place and the keys of each kind of object in a schema, outer objects first."""
    keys = {key: resolved(schema, one) for key, one in part.get("properties", {}).items()}
    if keys:
        yield place, keys
    for key, one in keys.items():
        yield from tables(schema, one, f"{place}.{key}".lstrip("."))
    for within, mark in (("items", "[]"), ("additionalProperties", "[NAME]")):
        if within in part:
            yield from tables(schema, resolved(schema, part[within]), place + mark)


def _cell(one: Schema) -> str:
    """Returns the meaning of a key for a table: linked, without the last period, with its fixed values."""
    words = one["description"].removesuffix(".").replace("|", "\\|")
    if not words[1:2].isupper():
        words = words[0].lower() + words[1:]
    for name in sorted(LINKS, key=len, reverse=True):
        if name in words:
            words = words.replace(name, f"[{name}]({LINKS[name]})", 1)
            break
    values = [one["const"]] if "const" in one else [value for value in one.get("enum", ()) if value is not None]
    return words + (f" ({', '.join(f'`{value}`' for value in values)})" if values else "")


def _section(title: str, text: str) -> str:
    schema = json.loads(text)
    parts = [f"## nvcoll {title}"]
    if about := schema["description"].removesuffix("Later versions may add keys.").strip():
        parts.append(about)
    for place, keys in tables(schema, schema):
        head = f"key of `{place}`" if place else "key"
        rows = [f"| `{key}` | {_cell(one)} |" for key, one in keys.items()]
        parts.append("\n".join([f"| {head} | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def page() -> str:
    """Writes ``docs/reference/json.md``."""
    sections = []
    for command in (name for names in nvcoll.cli.COMMANDS.values() for name in names):
        if command == STEPS[0]:
            sections.append(_section(", ".join(STEPS), report.schema()))
        elif (formats.SCHEMAS / f"{command}.json").is_file():
            sections.append(_section(command, formats.schema(command)))
    return PAGE.format(sections="\n\n".join(sections))


if __name__ == "__main__":
    print(page(), end="")
