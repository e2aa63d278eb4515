"""What does a dry run say where public start-up logs of vLLM print their KV cache?

    python tools/predict/kv_caches.py [NAME]...

Logs are rows of `kv_caches.toml`. The vLLM that is installed serves those rows of which it is the version tried
(`tried`), or the named rows. Prints their lines of the table in `docs/serving.md`, and the median of the differences.
A row takes one to five minutes. Keys of a row:

| key | |
|---|---|
| `log`, `vllm` | where it is, and the version that it names |
| `model` | a model of the file: the fields of its public config.json |
| `on`, `gpus` | the machine, and the GPUs of the server |
| `options` | options of `vllm serve`: the log's, and the defaults of its version that have changed since |
| `tokens`, or `gib` | the size of the KV cache that it prints |
| `tried` | the version that stands for it here |
| `environment` | environment variables |
| `note` | what else differs |
"""

import argparse
import json
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from nvcoll.testing import dryrun

ROWS = Path(__file__).with_suffix(".toml")
HEAD = "| log | vLLM | model | machine | options | printed | here | |\n|---|---|---|---|---|---|---|---|"


def config(models: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the config.json of a model, and of the model that it differs from."""
    own = dict(models[name])
    base = own.pop("of", None)
    return (config(models, base) if base else {}) | own


def found(row: dict[str, Any], models: dict[str, Any], folder: Path) -> tuple[str, str, float]:
    """Returns what the log prints, what the dry run says, and the difference as a share of what is printed."""
    (folder / "config.json").write_text(json.dumps(config(models, row["model"])))
    options = ["serve", str(folder), *row["options"].split()]
    gpus = row.get("gpus", 1)
    options += ["--tensor-parallel-size", str(gpus)] if gpus > 1 else []
    conditions = {"on": row["on"], "world_size": gpus, "environment": row.get("environment"), "time_limit": 900.0}
    served = dryrun("vllm", *options, serve=True, is_cached=False, **conditions).recording.facts["served"]
    if "tokens" in row:
        return f"{row['tokens']:,}", f"{served['kv_tokens']:,}", served["kv_tokens"] / row["tokens"] - 1
    gib = served["kv_bytes"] / 2**30
    return f"{row['gib']} GiB", f"{gib:.2f} GiB", gib / row["gib"] - 1


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*")
    names, own = parser.parse_args().name, version("vllm")
    data, off = tomllib.loads(ROWS.read_text()), []
    print(HEAD)
    for name, row in data["logs"].items():
        if name not in names if names else row["tried"] != own:
            continue
        with tempfile.TemporaryDirectory() as folder:
            printed, here, difference = found(row, data["models"], Path(folder))
        off.append(abs(difference))
        options = f"TP {row['gpus']} {row['options']}" if "gpus" in row else row["options"]
        cells = row["log"], row["vllm"], row["model"], row["on"], options, printed, f"{here} ({own})"
        print(f"| {' | '.join(cells)} | {difference:+.1%} |", flush=True)
    print(f"{len(off)} logs, median {median(off):.1%}" if off else "no row", file=sys.stderr)


if __name__ == "__main__":
    main()
