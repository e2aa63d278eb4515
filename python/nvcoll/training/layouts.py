"""Layouts of training steps, by the short words of the field.

=================  =============================================================================================
``tp``             tensor-parallel ranks
``pp``, ``vp``     stages of the pipeline, and chunks of each (virtual stages)
``cp``             context-parallel ranks
``ep``             expert-parallel ranks
``dp``             data-parallel ranks; default: what the others leave of ``gpus``
``zero``           what data-parallel ranks shard: 0 nothing, 1 the optimizer, 2 gradients, 3 parameters (FSDP)
``shard_ranks``    the ranks among which it is sharded, if not all: HSDP
``recompute``      none, selective (attention), full (layers), or the parts of a layer as a mapping
``schedule``       1f1b, gpipe, interleaved, zero-bubble-1p, zero-bubble-2p
=================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from nvcoll._nvcoll import InvalidArgument
from nvcoll.training.options import DTYPES, GLOBAL_BATCH, ORDERS, SCHEDULES, PlanOptions

ZERO: Final = ("none", "optimizer", "gradients", "parameters")
"""What is sharded, by stage of ZeRO (arXiv 1910.02054)."""

RECOMPUTE: Final[Mapping[str, Mapping[str, float]]] = {
    "none": {"gemm": 0.0, "attention": 0.0, "elementwise": 0.0},
    "selective": {"gemm": 0.0, "attention": 1.0, "elementwise": 0.0},
    "full": {"gemm": 1.0, "attention": 1.0, "elementwise": 1.0},
}
"""The parts of the forward pass of a layer that are computed again (arXiv 2205.05198)."""


def one_of(what: str, value: str, known: tuple[str, ...]) -> str:
    """Returns a value that is known.

    Raises:
        InvalidArgument: it is not.
    """
    if value not in known:
        raise InvalidArgument(f"no {what} is called `{value}`: choose from {', '.join(known)}")
    return value


def recompute_of(recompute: str | Mapping[str, float]) -> Mapping[str, float]:
    """Returns the parts of a layer that are computed again."""
    if not isinstance(recompute, str):
        return recompute
    return RECOMPUTE[one_of("recomputation", recompute, tuple(RECOMPUTE))]


def layout(how: PlanOptions, *, gpus: int, sequence: int, sequence_parallel: bool = False) -> dict[str, Any]:
    """Returns the fields of a layout, as ``rust/nvcoll-step/src/layout.rs`` has them.

    Args:
        how: the options.
        gpus: the number of GPUs.
        sequence: tokens of a sequence, if the options do not say it.
        sequence_parallel: whether tensor-parallel ranks divide sequences, if the options do not say it.

    Raises:
        InvalidArgument: a word is unknown, or the others leave no whole number of data-parallel ranks. The planner
            checks the rules of layouts.
    """
    tp, pp, cp, vp, zero = (how.get("tp", 1), how.get("pp", 1), how.get("cp", 1), how.get("vp", 1), how.get("zero", 1))
    others, dp, shard_ranks = tp * pp * cp, how.get("dp"), how.get("shard_ranks")
    if dp is None:
        if others < 1 or gpus % others:
            raise InvalidArgument(f"TP {tp} x PP {pp} x CP {cp} = {others} does not divide {gpus} GPUs")
        dp = gpus // others
    if zero not in range(len(ZERO)):
        raise InvalidArgument(f"there is no ZeRO {zero}: pass 0, 1, 2 or 3")
    found = {
        "gpus": gpus,
        "tensor": tp,
        "sequence_parallel": how.get("sequence_parallel", sequence_parallel) and tp > 1,
        "stages": pp,
        "chunks": vp,
        "schedule": one_of("schedule", how.get("schedule") or ("interleaved" if vp > 1 else "1f1b"), SCHEDULES),
        "context": cp,
        "expert": how.get("ep", 1),
        "data": dp,
        "sharding": ZERO[zero],
        "micro_batch": how.get("micro_batch", 1),
        "global_batch": how.get("global_batch", GLOBAL_BATCH),
        "sequence": how.get("sequence") or sequence,
        "recompute": dict(recompute_of(how.get("recompute", "none"))),
        "dtype": one_of("dtype", how.get("dtype", "bf16"), DTYPES),
        "order": one_of("order", how.get("order", "tp-cp-dp-pp"), ORDERS),
    }
    return found | ({} if shard_ranks is None or zero == 0 else {"shard_ranks": shard_ranks})


SHORT: Final = {"tensor": "tp", "stages": "pp", "chunks": "vp", "context": "cp", "expert": "ep", "data": "dp"}
"""The options of fields of a layout that are called otherwise."""


def options_of(layout: Mapping[str, Any]) -> PlanOptions:
    """Returns the options of a layout, or of some of its fields: those with which `layout` returns it."""
    found = {SHORT.get(name, name): value for name, value in layout.items() if name not in ("gpus", "sharding")}
    if "sharding" in layout:
        found["zero"] = ZERO.index(layout["sharding"])
    if (parts := layout.get("recompute")) is not None:
        found["recompute"] = next((name for name, known in RECOMPUTE.items() if known == parts), parts)
    return cast(PlanOptions, found)


def words(layout: Mapping[str, Any]) -> str:
    """Returns a layout in the short words of the field, as ``TP 8  PP 4  DP 16  micro-batch 1``."""
    sizes = (("TP", "tensor"), ("PP", "stages"), ("VP", "chunks"), ("CP", "context"), ("EP", "expert"))
    shown = [f"{name} {layout[key]}" for name, key in sizes if layout.get(key, 1) > 1]
    shown.append(f"DP {layout['data']}")
    if layout["sharding"] != "none":
        shown.append(f"ZeRO {ZERO.index(layout['sharding'])}")
    shown.append(f"micro-batch {layout['micro_batch']}")
    again = next((name for name, parts in RECOMPUTE.items() if parts == layout.get("recompute")), "some")
    return "  ".join([*shown, *([] if again == "none" else [f"recompute {again}"])])
