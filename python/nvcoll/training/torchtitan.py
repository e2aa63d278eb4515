"""Reads a job of torchtitan, TOML, as its versions up to 2025 take it; `torchtitan_python` makes the same of Python.

Names of fields and defaults are from `torchtitan/config/job_config.py`; older files have the parallel sizes in
`[training]` and `[experimental]`. Not read: lists of modules for stages, quantisation of some
layers only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus
from nvcoll.training.finetuning import tuned
from nvcoll.training.models import models
from nvcoll.training.options import PARTS_OF_LAYERS, RECOMPUTE

TABLE: Final = TABLES["torchtitan"]
NARROW: Final = re.compile(r"(?i)float8|mxfp8|linear\.mx|^mx$")
ASYNC: Final = "enable_async_tensor_parallel"


def is_read(values: Mapping[str, object]) -> bool:
    """Says whether this is a job of torchtitan."""
    model = values.get("model")
    return isinstance(model, dict) and "flavor" in model


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a job says; `gpus` as of `nvcoll.training.configurations.read`, and required.

    Raises:
        InvalidArgument: the model is not shipped, the number of GPUs is missing, or a field is wrong.
    """
    job = Fields(values, where)
    family = job.part("model").typed(str, "name", "llama3")
    flavor = job.part("model").typed(str, "flavor", "").removesuffix("_flex").removesuffix("_varlen")
    flavors = job.chosen("`model.name`", family, TABLE["models"])
    model = job.chosen("`model.flavor`", flavor.removesuffix("_irope"), flavors)
    return of_job(model, job, gpus)


def of_job(model: str, job: Fields, gpus: Gpus) -> Configuration:
    """Returns what a job says beside its model; arguments and errors as of `read`."""
    if (count := gpus.of()) is None:
        raise job.error("a job of torchtitan does not say the number of GPUs: pass `gpus`")
    again, compiling, converted = (job.part(name) for name in ("activation_checkpoint", "compile", "model"))
    parts = {name: job.part(name).values for name in ("experimental", "training", "parallelism")}
    fields = Fields({name: value for part in parts.values() for name, value in part.items()}, job.where)
    layers = models()[model]["layers"] if model in models() else 0
    layout, notes = _layout(fields, count, layers), list[str]()
    if layout["schedule"] == "zero-bubble-1p":
        notes.append("the schedule counts as zero-bubble-1p with one chunk per stage")
    offload = ["parameters", "optimizer"] if fields.first("enable_cpu_offload") is True else []
    layout |= tuned(notes, optimizer=job.part("optimizer").typed(str, "name", ""), offload=offload)
    layout["recompute"] = _recompute(again)
    converters = [str(one) for one in converted.typed(list, "converters", [])]
    narrow = [one for one in converters if NARROW.search(one)]
    notes += [f"not read: the converter {one[:60]}" for one in converters if one not in narrow]
    layout |= {"mtp": layers} if (layers := converted.number("num_mtp_layers", default=0, least=0)) else {}
    eight = bool(narrow) or job.part("float8").typed(bool, "enable_float8_linear", False)
    layout["dtype"] = "fp8" if eight else "tf32" if fields.first("mixed_precision_param") == "float32" else "bf16"
    enabled = compiling.typed(bool, "enable", fields.typed(bool, "compile", False))
    compiled = enabled and "model" in compiling.typed(list, "components", ["model"])
    hides = compiled and fields.typed(bool, ASYNC, compiling.typed(bool, ASYNC, False))
    read = [(Fields(part, job.where, fields.asked), f"{name}.") for name, part in parts.items()]
    read += [(again, "activation_checkpoint."), (compiling, "compile."), (converted, "model."), (job, "")]
    notes += [note for part, name in read for note in part.not_read(TABLE["without_effect"], name)]
    software = "torchtitan-compile" if compiled else "torchtitan"
    return Configuration(model, layout, software, {"overlaps_tensor": True} if hides else {}, notes)


def _layout(fields: Fields, gpus: int, layers: int) -> dict[str, object]:
    sizes = fields.sizes(TABLE["layout"])
    tensor, stages, context = (sizes[name] for name in ("tp", "pp", "cp"))
    copies = fields.number("data_parallel_replicate_degree", default=1)
    shards = max(1, gpus // (tensor * stages * context * copies))
    if fields.first("data_parallel_shard_degree", "data_parallel_degree") != -1:
        shards = fields.number("data_parallel_shard_degree", "data_parallel_degree", default=shards)
    if (ranks := tensor * stages * context * copies * shards) != gpus:
        raise fields.error(f"the parallel degrees make {ranks} ranks, but there are {gpus} GPUs: pass that number")
    layout: dict[str, object] = {**sizes, "dp": copies * shards, "sequence_parallel": tensor > 1}
    local = fields.number("local_batch_size", "batch_size", default=8)
    given = fields.first("global_batch_size") not in (None, -1)
    layout["global_batch"] = fields.number("global_batch_size") if given else local * copies * shards
    layout["micro_batch"] = local if stages == 1 else fields.number("pipeline_parallel_microbatch_size", default=1)
    never = fields.first("fsdp_reshard_after_forward") == "never"
    layout["zero"] = 0 if shards * context == 1 else 2 if never else 3
    layout |= {"shard_ranks": shards * context} if copies > 1 and shards * context > 1 else {}
    return layout | _pipeline(fields, stages, layers)


def _pipeline(fields: Fields, stages: int, layers: int) -> dict[str, object]:
    name = fields.typed(str, "pipeline_parallel_schedule", "1F1B")
    schedule = fields.chosen("`pipeline_parallel_schedule`", name, TABLE["schedules"])
    if stages == 1 or schedule != "interleaved":
        return {"vp": 1, "schedule": "1f1b" if stages == 1 else schedule}
    ends = (f"pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
    layers += sum(fields.number(end, default=1, least=0) for end in ends)
    each = fields.number("pipeline_parallel_layers_per_stage", default=-(-layers // (2 * stages)))
    return {"vp": max(2, -(-layers // each) // stages), "schedule": schedule}


def _recompute(fields: Fields) -> str | Mapping[str, float]:
    mode = fields.typed(str, "mode", "selective")
    if mode == "selective" and fields.first("selective_ac_option") == "op":
        return {"gemm": 0.5, "attention": 0.0, "elementwise": 1.0}  # every second GEMM and attention are kept
    if mode == "selective":
        return dict.fromkeys(PARTS_OF_LAYERS, 1 / fields.number("selective_ac_option", default=2))
    return fields.chosen("`activation_checkpoint.mode`", mode, RECOMPUTE)
