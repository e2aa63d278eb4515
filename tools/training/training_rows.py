"""Published training steps as requests to plan: machine, model, software, layout, and what is computed again.

    python tools/training/training_rows.py               what is assumed of each source and model
    python tools/training/training_rows.py --id megatron_bridge-0104

``data/training-steps`` holds what sources print. What they leave to their software is here: the profile of each
source (`software`), what its recipes compute again (`recompute`), and which machine it ran on (`SYSTEMS`). A value that
no text tells is a guess, and listed in `Published.guesses`.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from nvcoll.training import WorkStep
from nvcoll.training.models import software_of
from nvcoll.training.planning import asked

DATA: Final = Path(__file__).parents[2] / "data" / "training-steps"

Fields = Mapping[str, Any]
Parts = Mapping[str, float]

SYSTEMS: Final[Mapping[str, tuple[str, int, str]]] = {
    "selene-a100": ("hgx-a100", 8, "ib-hdr-8"),
    "dgx-a100-2020": ("hgx-a100", 8, "ib-hdr-8"),
    "dgx2-v100": ("dgx2", 16, "ib-edr-4"),
    "jean-zay-a100": ("hgx-a100", 8, "ib-edr-4"),
    "internlm-a100": ("hgx-a100", 8, "ib-edr-4"),
    "sea-a100-roce": ("hgx-a100", 8, "roce-200-8"),
    "mosaic-40gb-a100": ("hgx-a100", 8, "roce-200-8"),
    "mosaic-80gb-a100": ("hgx-a100", 8, "roce-200-8"),
    "jax-a100": ("hgx-a100", 8, "ib-hdr-8"),
    "tinyllama-a100-40g": ("hgx-a100", 8, "ib-hdr-8"),
    "aleph-a100": ("hgx-a100", 8, "ib-hdr-8"),
    "vtrain-a100": ("hgx-a100", 8, "ib-hdr-8"),
    "titan-a100": ("hgx-a100", 8, "ib-hdr-8"),
    "titan-h100": ("hgx-h100", 8, "ib-ndr-8"),
    "dgx-h100": ("hgx-h100", 8, "ib-ndr-8"),
    "eos-h100": ("hgx-h100", 8, "ib-ndr-8"),
    "mosaic-h100": ("hgx-h100", 8, "ib-ndr-8"),
    "jax-h100": ("hgx-h100", 8, "ib-ndr-8"),
    "hf-h100-p5": ("hgx-h100", 8, "efa-100-32"),
    "dgx-b200": ("hgx-b200", 8, "ib-ndr-8"),
    "dgx-b300": ("hgx-b300", 8, "ib-xdr-8"),
    "dgx-gb200": ("gb200-64", 64, "ib-ndr-4"),
    "dgx-gb300": ("gb300-64", 64, "ib-xdr-4"),
}
"""The node, its GPUs, and the network of each system. Networks that a source does not name are those of the class."""

MEASURED: Final[Mapping[str, Sequence[Fields]]] = {
    # Ultra-Scale Playbook, 256 MB: what its owner measured between the nodes of the cluster.
    "hf-h100-p5": [
        {
            "collectives": ["all_gather", "reduce_scatter", "broadcast", "all_to_all"],
            "nodes": [2, 4, 8, 16, 32, 64],
            "busbw_gbps": [185.0, 119.0, 69.0, 55.0, 28.0, 11.0],
        },
        {
            "collectives": ["all_reduce"],
            "nodes": [2, 4, 8, 16, 32, 64],
            "busbw_gbps": [362.0, 160.0, 100.0, 85.0, 65.0, 33.0],
        },
    ],
}
"""Bus bandwidths that the owners of systems measured, as ``MeasuredBandwidth`` of nvcoll-step has them."""

CHANGES: Final[Mapping[str, str]] = {
    "jean-zay-a100": f"nvlink x{4 / 12}",
}
"""What a system has else than its node. Jean Zay: 4 NVLinks of a GPU instead of 12 (model card of BLOOM)."""

LATENT: Final = {"q": 1536, "kv": 512, "nope": 128, "rope": 64, "v": 128}
"""Latent attention of DeepSeek-V3 and Kimi K2 (arXiv 2412.19437, 2507.20534)."""

NVIDIA: Final = ("megatron_bridge", "dgxc_benchmarking")
"""Sources whose recipes are in scripts/performance of Megatron-Bridge and NeMo."""


@dataclass(frozen=True)
class Published:
    """One published step: where it ran, what ran, and its seconds.

    ``words`` are `nvcoll.training.options.PlanOptions`; ``measured`` rows of bandwidths of the machine;
    ``domain`` the number of GPUs that its NVLinks join.
    """

    id: str
    source: str
    quality: str
    seconds: float
    memory_gb: float | None
    machine: str
    change: str | None
    domain: int
    gpus: int
    gpu: str
    measured: Sequence[Fields]
    model: Fields
    software: str
    overrides: Fields
    words: Fields
    guesses: tuple[str, ...]

    @property
    def options(self) -> dict[str, Any]:
        """What is planned besides the model: layout and software."""
        return {**self.words, "software": self.software, "overrides": self.overrides}

    def step(self) -> WorkStep:
        """Plans the step."""
        return WorkStep.plan(asked(self.model, self.options), gpus=self.gpus, domain=self.domain)


def published(path: Path = DATA / "measurements.csv") -> list[Published]:
    """Reads a table of measured steps."""
    return [_published(row) for row in _table(path)]


@dataclass(frozen=True)
class Failed:
    """A published run that did not run, with what the planner is asked."""

    id: str
    system: str
    gpus: int
    name: str
    asked: str

    def step(self) -> WorkStep:
        """Plans the step."""
        return WorkStep.plan(self.asked, gpus=self.gpus, domain=8)


def failed() -> list[Failed]:
    """Returns the runs of nanotron that failed, and one of torchtitan that was out of memory."""
    found = [_failed_of_nanotron(row) for row in _table(DATA / "nanotron-failed.csv")]
    again = _parts(*ACTIVATION_CHECKPOINTS["op"])
    how = {"global_batch": 128, "micro_batch": 2, "dp": 64, "zero": 3, "recompute": again}
    torchtitan = _asked("llama2-70b", how, "torchtitan")
    return [*found, Failed("torchtitan-performance-1", "titan-a100", 64, "llama2-70b, micro-batch 2", torchtitan)]


def _failed_of_nanotron(row: Mapping[str, str]) -> Failed:
    sizes = {name: int(row[name]) for name in ("micro_batch", "dp", "pp", "tp", "zero")}
    batch = sizes["micro_batch"] * int(row["accumulation"]) * sizes["dp"]
    how = {"global_batch": batch, "sequence_parallel": True, **sizes}
    name = f"{row['model']}, {', '.join(f'{size} {value}' for size, value in sizes.items())}"
    return Failed(row["id"], "hf-h100-p5", 8 * int(row["nodes"]), name, _asked(row["model"], how, "nanotron"))


def _asked(model: str, how: Fields, software: str) -> str:
    return asked(_model(model, 4096), {**how, "software": software})


def _table(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


@cache
def _sources() -> dict[str, str]:
    return {row["origin"]: row["source"] for row in _table(DATA / "origins.csv")}


@cache
def _models() -> dict[str, dict[str, str]]:
    return {row["model"]: row for row in _table(DATA / "models.csv")}


def _published(row: dict[str, str]) -> Published:
    row = row | {"source": _sources()[row["origin"]]}
    model = _model(row["model"], int(row["sequence"]))
    name, overrides = software(row, model)
    guesses = [
        what for what, known in (("micro_batch", row["micro_batch"]), ("recompute", row["recompute"])) if not known
    ]
    if row["schedule"] == "interleaved" and int(row["vp"]) == 1:
        guesses.append("vp")
    return Published(
        id=row["id"],
        source=row["source"],
        quality=row["quality"],
        seconds=float(row["step_time_s"]),
        memory_gb=float(row["memory_gb"]) if row["memory_gb"] else None,
        machine=machine(row["system"], int(row["gpus"])),
        change=CHANGES.get(row["system"]),
        domain=SYSTEMS[row["system"]][1],
        gpus=int(row["gpus"]),
        gpu=row["gpu"],
        measured=MEASURED.get(row["system"], ()),
        model=model,
        software=name,
        overrides=overrides,
        words=_words(row, model, name),
        guesses=tuple(guesses),
    )


def machine(system: str, gpus: int) -> str:
    """Returns the name of the machine: nodes of the system, or some GPUs of one."""
    node, each, network = SYSTEMS[system]
    nodes = -(-gpus // each)
    return node if nodes == 1 else f"{node}x{nodes}+{network}"


def _model(name: str, sequence: int) -> dict[str, Any]:
    row = _models()[name]
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
    flags = ("gated", "tied")
    fields: dict[str, Any] = {"name": name, "sequence": sequence, "positions": _positions(name, row["arch"])}
    fields |= {key: int(row[key]) for key in sizes} | {key: row[key] == "1" for key in flags}
    if row["experts"]:
        experts = {"count": "experts", "top_k": "top_k", "ffn": "expert_ffn", "shared": "shared_experts"}
        fields["experts"] = {key: int(row[column]) for key, column in experts.items()} | {
            "dense_layers": int(row["dense_layers"]),
            "every": 1,
        }
    if name == "llama4-maverick":  # every second layer is dense, not the first 24
        fields["experts"] |= {"dense_layers": 0, "every": 2}
    if row["arch"] == "moe-mla":
        fields["mla"] = LATENT
    if name.startswith("gpt-oss"):
        fields["window"] = {"tokens": 128, "every": 2}
    return fields


def _positions(name: str, arch: str) -> str:
    if name.startswith("bloom"):
        return "alibi"
    return "learned" if arch == "gpt" and not name.startswith("nemotron") else "rotary"


def software(row: Fields, model: Fields) -> tuple[str, dict[str, Any]]:
    """Returns the name of the software of a row, and the fields in which its run differs from the profile."""
    source, framework, detail = row["source"], row["framework"], row["dtype_detail"]
    is_hopper = row["gpu"].startswith("h100")
    if source == "megatron_2020":
        return "megatron-2020", {}
    if framework == "Megatron-DeepSpeed":
        return "megatron-deepspeed", {"gradient_bytes": 2} if "fp16" in detail else {}
    if source == "llm_foundry":
        return "composer-fsdp", {"gradient_bytes": 2} if "PURE" in detail else {}
    if framework.startswith("Paxml"):
        has_fused = is_hopper or row["gpu"].startswith("gb") or "te" in detail
        return "pax", {} if has_fused else {"attention": "unfused"}
    if source == "aleph_layouts":
        return _of_aleph(detail)
    if source == "vtrain_single":  # its model divides 50,257 by TP
        return "megatron", {"pads_vocabulary": False}
    if source == "torchtitan":
        return "torchtitan-compile" if "compile" in detail else "torchtitan", {}
    if source == "megatron_llama_example":  # --grad-reduce-in-bf16 --fp8-param-gather, and sends overlap
        return "megatron-core", {"gradient_bytes": 2, "gathers_fp8": True, "overlaps_sends": True}
    if source in NVIDIA:
        return _of_recipes(row, model, is_hopper)
    return FRAMEWORKS[framework], {}


FRAMEWORKS: Final = {
    "Megatron-LM": "megatron",
    "Megatron-LM fork": "megatron",
    "Megatron-Core": "megatron-core",
    "NeMo 1.x/Megatron-Core": "nemo",
    "InternEvo": "internevo",
    "nanotron": "nanotron",
    "MaxText (JAX/XLA)": "maxtext",
    "lit-gpt (Fabric FSDP)": "lit-gpt",
}
"""Profiles of frameworks that ran alike in all rows of their source."""


def _of_aleph(detail: str) -> tuple[str, dict[str, Any]]:
    """What arXiv 2311.05610 compares: kernels of attention, and a fused RMSNorm.

    Gradients are kept in bf16: 13 billion parameters ran on one GPU of 80 GB each, which gradients in fp32 exceed.
    """
    attention = {"flash_attention2": "fa2", "flash_attentionv1.0.8": "fa1"}.get(detail.split(" + ")[0], "unfused")
    fused = {"has_dropout": False, "elementwise": 1.25, "fuses_norms": "RMS" in detail}
    return "megatron", {"attention": attention, "memory_gradient_bytes": 2, **fused}


def _of_recipes(row: Fields, model: Fields, is_hopper: bool) -> tuple[str, dict[str, Any]]:
    """Performance recipes of NVIDIA: dense models run as the profile says, experts differ by model, GPU and version."""
    is_bridge = row["source"] == "megatron_bridge"
    if row["framework"].startswith("MaxText"):
        return "maxtext", {}
    name = "megatron-bridge" if is_bridge else "nemo"
    found: dict[str, Any] = _memory_of_recipes(row)
    if "experts" not in model:
        return name, found
    if is_bridge and row["version"] >= "26.06" and row["dtype"] != "bf16" and not is_hopper:
        return "megatron-bridge-26.06", found
    if _is_deepseek(row) and row["gpu"] == "b200" and int(row["pp"]) == 8:
        found["overlaps_experts"] = True
    if row["model"].startswith("qwen3-235b") and is_hopper:
        found["overlaps_experts"] = True
    if row["gpu"] in ("gb200", "gb300") and row["version"].startswith("26"):
        found["host_experts"] = 0.5  # partial CUDA graphs; the factor was found in these runs
    if row["model"].startswith("gpt-oss"):
        found["expert_casts"] = 2.5  # activation with bias and clamp, not fused; found in these runs
    return name, found


def _memory_of_recipes(row: Fields) -> dict[str, Any]:
    """What recipes of NVIDIA do to save memory.

    Megatron-Bridge, scripts/performance/utils/overrides.py: a precision-aware optimizer with bf16, whose master weights
    are the 16 bits that bf16 parameters lack, but none with FSDP; recipes/deepseek: its moments in bf16; configs/llama:
    layers whose activations are offloaded. NVIDIA/dgxc-benchmarking grok1/README.md: ETP 4 on GB200.
    """
    found: dict[str, Any] = {}
    is_sharded = row["zero"] == "3"
    master = 2 if row["dtype"] == "bf16" and not is_sharded else 4
    moments = 4 if _is_deepseek(row) else 8
    if master + moments != 12:
        found["optimizer_bytes"] = master + moments
    if is_sharded and (row["model"], row["gpu"]) in OFFLOADED:
        found["offloaded_layers"] = OFFLOADED[row["model"], row["gpu"]]
    if row["model"].startswith("grok1") and row["gpu"] == "gb200":
        found["divides_experts"] = True
    return found


OFFLOADED: Final = {("llama3-70b", "gb200"): 40, ("llama3-70b", "gb300"): 20, ("llama3.1-405b", "gb200"): 95}
"""cpu_offloading_num_layers of the recipes with FSDP and fp8."""


def _is_deepseek(row: Fields) -> bool:
    return row["model"].startswith(("deepseek", "kimi"))


def recompute(row: Fields, model: Fields, profile: str) -> Parts:
    """Returns the parts of a layer that are computed again: as printed, or as recipe and framework have it."""
    framework, again = row["framework"], row["recompute"] or "none"
    if framework.startswith("Paxml"):
        return _of_pax(row)
    if framework.startswith("MaxText"):
        return _of_maxtext(row, model)
    if again in ACTIVATION_CHECKPOINTS:
        return _parts(*ACTIVATION_CHECKPOINTS[again])
    parts = _parts(*RECOMPUTE[again])
    if row["source"] not in NVIDIA or "experts" not in model:
        return parts
    if _is_deepseek(row):  # mla_up_proj, on H100 the MLP of dense layers, too
        parts["gemm"] = 0.2 if row["gpu"].startswith("h100") else 0.1
    if row["model"].startswith("gpt-oss"):  # layernorm, moe_act
        parts["elementwise"] = 0.6
    if profile == "megatron-bridge-26.06":
        parts["elementwise"] = 0.0
    return parts


ACTIVATION_CHECKPOINTS: Final = {"layer": (0.5, 0.5, 0.5), "op": (0.5, 0.0, 1.0)}
"""Selective activation checkpointing of torchtitan: every second layer, or every second GEMM and all but attention."""


RECOMPUTE: Final = {"none": (0.0, 0.0, 0.0), "selective": (0.0, 1.0, 0.0), "full": (1.0, 1.0, 1.0)}
"""What `nvcoll.training.plan` calls so."""


def _parts(gemm: float, attention: float, elementwise: float) -> Parts:
    return {"gemm": gemm, "attention": attention, "elementwise": elementwise}


def _of_pax(row: Fields) -> Parts:
    """SAVE_NOTHING by default; the 5B model saves products without batch dimension; dgxc saves some of the products."""
    if row["model"] == "gpt3-5b":
        return _parts(0.0, 1.0, 1.0)
    return _parts(1.0 if row["source"] == "jax_toolbox_pax" else 1 / 3, 1.0, 1.0)


def _of_maxtext(row: Fields, model: Fields) -> Parts:
    """minimal_flash of JAX-Toolbox saves products and attention; save_qkv_proj of dgxc queries, keys and values."""
    if row["source"] == "jax_toolbox_maxtext":
        return _parts(0.0, 0.0, 1.0)
    hidden, width = model["hidden"], model["head_dim"]
    queries, keys = model["heads"] * width * hidden, model["kv_heads"] * width * hidden
    mlp = model["ffn"] * hidden
    return _parts((queries + 2 * mlp) / (2 * queries + 2 * keys + 3 * mlp), 1.0, 1.0)


README_MICRO_BATCHES: Final = {24: 4, 30: 2, 32: 2, 48: 2, 84: 1}
"""By layers, for the README of Megatron-LM, which prints none. Guesses."""


def _words(row: Fields, model: Fields, profile: str) -> dict[str, Any]:
    micro_batch = int(row["micro_batch"] or 0)
    if not micro_batch:
        is_readme = row["source"] == "megatron_readme_h100"
        micro_batch = README_MICRO_BATCHES.get(model["layers"], 1) if is_readme else 1
    of_profile = bool(software_of(profile).get("sequence_parallel", False))
    vp = int(row["vp"])
    schedule = row["schedule"] or "1f1b"
    return {
        "global_batch": int(row["global_batch"]),
        "sequence": int(row["sequence"]),
        "micro_batch": micro_batch,
        "tp": int(row["tp"]),
        "sequence_parallel": row["sp"] == "1" if row["sp"] else of_profile,
        "pp": int(row["pp"]),
        "vp": vp,
        "cp": int(row["cp"]),
        "ep": int(row["ep"]),
        "dp": int(row["dp"]),
        "zero": int(row["zero"]),
        "shard_ranks": int(row["shard_ranks"]) if row["shard_ranks"] else None,
        "recompute": recompute(row, model, profile),
        "dtype": {"nvfp4": "fp4"}.get(row["dtype"], row["dtype"]),
        "schedule": "1f1b" if schedule == "interleaved" and vp == 1 else schedule,
    }


def assumptions(rows: Sequence[Published]) -> list[tuple[str, ...]]:
    """Returns what is assumed of each source, model and precision: software, recompute, gradients, what hides."""
    found = []
    for row in rows:
        fields = software_of(row.software, row.overrides)
        again = row.words["recompute"]
        hides = ("tensor", "data", "sends", "experts", "sharded")
        overlaps = " ".join(name for name in hides if fields[f"overlaps_{name}"])
        parts = "/".join(f"{again[name]:.2f}".rstrip("0").rstrip(".") for name in ("gemm", "attention", "elementwise"))
        gradients = f"{fields['gradient_bytes']:g} bytes"
        sharded = f"ZeRO {row.words['zero']}"
        found.append((row.source, row.model["name"], row.gpu, row.software, parts, gradients, overlaps, sharded))
    return sorted(set(found))


def main(given: Sequence[str] | None = None) -> None:
    """Prints what is assumed, or one row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--id", help="print this row as JSON")
    parser.add_argument("--measurements", type=Path, default=DATA / "measurements.csv", help="table of measured steps")
    options = parser.parse_args(given)
    rows = published(options.measurements)
    if options.id:
        print(json.dumps([vars(row) for row in rows if row.id == options.id], indent=1))
        return
    heads = ("source", "model", "GPU", "software", "recompute", "gradients", "hides", "sharded")
    table = [heads, *assumptions(rows)]
    widths = [max(len(line[at]) for line in table) for at in range(len(heads))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
