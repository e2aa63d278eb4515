"""Iterations of an installed server in the place of planned ones: ``nvcoll serve MODELDIR --record FILE``.

The server runs once on virtual GPUs (`nvcoll.dryrun`), and gets requests in turn, so that its iterations have several
numbers of tokens. The file is a recording, as of ``nvcoll dryrun --save``; where it is there, nothing runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nvcoll._nvcoll import InvalidArgument
from nvcoll.dryrun.parent.failures import CannotDryRun
from nvcoll.dryrun.parent.launch import Request
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.dryrun.parent.script import record
from nvcoll.training.planning import Machine

REQUESTS: Final = "1x16,4x64,16x64,64x64,256x32"
"""What the server gets in turn: iterations of 1 to 256 sequences, and of 16 to 8,192 tokens of prompts. Chosen."""

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("vllm.entrypoints.cli.main", "serve", "{model}", "--tensor-parallel-size", "{tp}"),
    "sglang": ("sglang.launch_server", "--model-path", "{model}", "--tp", "{tp}"),
}
"""The module of each server that can be recorded, and its arguments."""

FP8: Final = {"precision": ("--quantization", "fp8"), "cache": ("--kv-cache-dtype", "fp8")}
"""Arguments of formats of 8 bits. Other formats are those of the model's files."""


def recorded(
    file: str | PathLike[str],
    model: str,
    machine: Machine,
    how: Mapping[str, Any],
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Returns what Rust gets of a server that was recorded, with ``tp``; records it if the file is not there.

    Args:
        file: the file.
        model: the folder of the model.
        machine: the machine on whose GPU the server runs.
        how: as `nvcoll.serving.ServeOptions` has it.
        tell: is called with each line of progress.

    Raises:
        CannotDryRun: there is no file, and the server is not installed.
        InvalidArgument: the file has another model or other options.
        DryRunError: the server does not run.
    """
    request = _request(model, machine, how)
    if Path(file).exists():
        found = Recording.load(file)
        if (was := found.facts["script"]) != request.words:
            raise InvalidArgument(f"{file} has `{was}`, not `{request.words}`: pass another file to record that")
    else:
        server = request.script.partition(".")[0]
        if find_spec(server) is None:
            raise CannotDryRun(f"{server} is not installed: pip install {server}, or pass a file that has a recording")
        found = record(request, tell)
        found.save(file)
    first = found.facts.get("served")
    assert first is not None, "a recording of a server has its iteration"
    iterations = [_iteration(one) for one in (found, *found.also)]
    return {"cache_tokens": first["kv_tokens"], "cache_bytes": first["kv_bytes"], "iterations": iterations}


def _request(model: str, machine: Machine, how: Mapping[str, Any]) -> Request:
    server, tp = how.get("server", "vllm"), how.get("tp") or 1
    if server not in COMMANDS:
        raise InvalidArgument(f"{server} cannot be recorded: choose from {', '.join(COMMANDS)}")
    if how.get("speculate"):
        raise InvalidArgument("a server that drafts tokens cannot be recorded: leave out --speculate, or --record")
    folder = Path(model).parent if Path(model).is_file() else Path(model)
    module, *words = COMMANDS[server]
    words += [word for name, added in FP8.items() if how.get(name) == "fp8" for word in added]
    arguments = [word.format(model=folder, tp=tp) for word in words]
    gpu = machine.fabric.gpu_model
    asked = Request(module, tuple(arguments), True, tp, gpu=gpu, serves=REQUESTS, is_quiet=True, is_cached=False)
    return asked.on(machine.fabric)


def _iteration(one: Recording) -> dict[str, Any]:
    served = one.facts["served"]
    if "tokens" not in served or "pairs" not in served:
        raise InvalidArgument("the recording was made by an earlier nvcoll: record the server again")
    sequences, pairs = served["sequences"], served["pairs"]
    decode = {"decodes": sequences, "cached": pairs - sequences}
    batch = decode if served["kind"] == "decode" else {"prompts": sequences, "tokens": served["tokens"], "pairs": pairs}
    return {"batch": batch, "step": json.loads(one.step.to_json())}
