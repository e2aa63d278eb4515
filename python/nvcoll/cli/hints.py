"""Names of other tools (nccl-tests, MPI, torch.distributed), and the names of nvcoll for the same things."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

from nvcoll._nvcoll import collective_spelled

_RANKS = {
    "--world-size": "pass -n RANKS",
    "--on": "the machine has the number of GPUs: pass --on hgx-h100x2+ib-ndr-8, or --on 'hgx-h100[0-3]' for some of it",
    "--svg": "the machine has the number of GPUs: nvcoll fabric hgx-h100x2+ib-ndr-8, or 'hgx-h100[0-3]' for some of it",
}
_ALGORITHM = {"--algorithm": "pass -a NAME", "--env": "pass --env NCCL_ALGO=Tree"}
_FILE = {"--save": "pass --save FILE"}

SERVERS = {
    "--tp": ("--tensor-parallel-size", "--tensor-parallel", "--tp-size", "--tp_size"),
    "--pp": ("--pipeline-parallel-size", "--pp-size", "--pp_size"),
    "--ep": ("--expert-parallel-size", "--enable-expert-parallel", "--ep-size", "--ep_size"),
    "--dp-attention": ("--data-parallel-size", "--enable-dp-attention", "--dp-size"),
    "--precision": ("--quantization", "--dtype", "--quant", "--weights"),
    "--kv-cache": ("--kv-cache-dtype", "--kv_cache_dtype"),
    "--in": ("--input-len", "--input", "--isl", "--random-input-len", "--prompt"),
    "--out": ("--output-len", "--osl", "--random-output-len", "--max-tokens"),
    "--rate": ("--request-rate", "--qps", "--rps"),
    "--concurrency": ("--max-concurrency", "--batch-size", "--batch", "--users", "--max-num-seqs", "--requests"),
    "--server": ("--engine", "--backend", "--framework"),
    "--speculate": ("--num-speculative-tokens", "--speculative-num-steps"),
}
"""For options of ``nvcoll serve``, what model servers and their benchmarks call them."""

OPTIONS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("-g", "--ngpus", "-t", "--nthreads", "--nproc-per-node", "--nproc_per_node", "-np"), _RANKS),
    **dict.fromkeys(("-n", "--world-size", "--ranks", "--gpus", "--nranks", "--world_size"), _RANKS),
    "--iters": {"--rounds": "pass --rounds (-n is the number of ranks)"},
    "-J": {"--json": "pass --json"},
    "--nccl": {"--nccl-version": "pass --nccl-version VERSION"},
    "--algo": _ALGORITHM,
    "--algorithm": _ALGORITHM,
    **dict.fromkeys(("--output", "--out", "--record", "--step"), _FILE),
    "--machine": {"--on": "pass --on MACHINE"},
    "--fabric": {"--on": "pass --on MACHINE"},
    "--max-model-len": {"--in": "pass --in and --out, the tokens of a prompt and of an answer"},
    "-t": {"--tp": "pass --tp, or -n for the number of GPUs", **_RANKS},
    **{other: {own: f"pass {own}"} for own, others in SERVERS.items() for other in others},
}
"""For options of other tools and commands, what to pass instead, by the option that the command must have for it."""


NUMBERS = ("Input should be a valid integer", "Input should be a valid number", "is not a valid")
"""How the errors of typer begin that say that a value is no number; of its old versions too."""


WEIGHTS: Final = ("int4", "int8", "4bit", "8bit", "nf4", "q4", "q8")
"""Formats of weights that people pass as a precision of products."""


def message(error: Any) -> str:
    """Returns the message of an error in the arguments: in our words, with what to pass; the command has all of it."""
    text: str = error.format_message()
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if param is not None and any(words in text for words in NUMBERS):
        return f"{' / '.join(param.opts)} takes a number: pass one, as {param.opts[0]} 4"
    if param is not None and "--dtype" in param.opts and any(word in text for word in WEIGHTS):
        return f"{text} These are the precisions of products: a frozen base in few bits is --lora 16 --quantize nf4"
    if context is None:
        return text
    has = {option for one in context.command.params for option in one.opts}
    known = OPTIONS.get(getattr(error, "option_name", ""), {})
    hint = next((hint for option, hint in known.items() if option in has), None)
    return f"{text.partition(' (Possible')[0].rstrip('.')}: {hint}" if hint else text


def collective_name(name: str | None) -> str | None:
    """Returns nvcoll's name of a collective in the spelling of another tool, as ``alltoall`` or ``AllReduce``."""
    return name and (collective_spelled(name) or name)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Returns the collective that the user probably means."""
    if (same := collective_spelled(name)) in known:
        return same
    spelled = {one: one for one in known} | {"alltoallv": "all_to_all", "bcast": "broadcast"}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.75)
    return spelled[found[0]] if found and spelled[found[0]] in known else None


def of_collective(name: str, known: Sequence[str]) -> str:
    """Returns the message for a collective that does not exist."""
    meant = nearest(name, known)
    hint = f"did you mean {meant}? " if meant else ""
    return f"no collective is called `{name}`: {hint}choose from {', '.join(known)}"
