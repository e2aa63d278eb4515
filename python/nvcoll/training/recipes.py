"""Reads recipes of fine-tuning, in YAML or as the command of a shell script, by one table of names for each framework.

``[recipes]`` in `configurations.toml` has the tables: for each meaning the names of the field, nested names with dots.
Rows of data are as long as the longest that a recipe allows. Options of `accelerate launch` in a file are not read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, Final

from nvcoll.training import finetuning, shell
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus
from nvcoll.training.huggingface import USUAL_SEQUENCE
from nvcoll.training.models import models, shipped

ZERO: Final = re.compile(r"zero([0-3])(_offload)?")
DTYPES: Final[Mapping[str, str]] = dict.fromkeys(("bfloat16", "bf16", "auto"), "bf16") | dict.fromkeys(
    ("float16", "fp16", "half"), "fp16"
)
DEEPEST: Final = 8
"""The deepest nesting of a field. Chosen: recipes have three."""


class Recipe:
    """The recipes of one framework."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table

    def is_read(self, values: object) -> bool:
        """Says whether this is a recipe of the framework."""
        if isinstance(values, str):
            return "command" in self.table and re.search(self.table["command"], values) is not None
        names = _flat(values) if isinstance(values, dict) else {}
        return any({*needed} <= names.keys() for needed in self.table.get("needs", []))

    def read(self, values: str | Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
        """Returns what a recipe says; `gpus` as of `nvcoll.training.configurations.read`.

        Raises:
            InvalidArgument: a field is missing or wrong, or the JSON of DeepSpeed is not there.
        """
        names, notes = shell.words(values, where, self.table["command"]) if isinstance(values, str) else (values, [])
        return _Reading(self.table, Fields(_flat(names), where), notes).configuration(gpus)


class _Reading:
    """A recipe that is being read."""

    def __init__(self, table: Mapping[str, Any], fields: Fields, notes: list[str]) -> None:
        self.table, self.fields, self.notes = table, fields, notes

    def configuration(self, gpus: Gpus) -> Configuration:
        model, sizes = self._model(), self.fields.sizes(self.table["layout"])
        sizes["sequence"] = sizes["sequence"] or self._usual_sequence()
        spread, software = self._sharding(gpus)
        layout: dict[str, object] = {**sizes, "zero": 0, **spread}
        said, each = gpus.of(self._processes()), sizes.get("tp", 1) * sizes.get("cp", 1)
        layout |= self._batch(Gpus(said), each)
        layout |= {"dp": said // each} if said and said != gpus.machine else {}
        again = self._value("recompute")
        is_again = self.table.get("recomputes", False) if again is None else bool(again)
        is_again ^= self._value("not_recompute") is True
        layout["recompute"] = "full" if is_again else layout.get("recompute", "none")
        rank = self._rank()
        is_pure = self._value("pure_bf16") is True
        layout["dtype"] = "bf16" if is_pure else self._dtype()
        is_pure = is_pure or (self.table.get("pure", False) and layout["dtype"] == "bf16")
        is_plain = (
            self.table.get("plain", "") in (True, DTYPES.get(self._text("dtype")))
            and layout["zero"] == 0
            and software != "deepspeed-zero"
        )
        if is_plain and layout["dtype"] == "bf16" and rank is None and not self._value("trained"):
            self.notes.append("without FSDP and DeepSpeed parameters are trained in bf16")
            is_pure = True
        layout |= {"pure_bf16": True} if is_pure and rank is None else {}
        layout |= {"optimizer_in_backward": True} if self._value("optimizer_in_backward") is True else {}
        layout |= self._frozen(model) if self._text("how") == "freeze" else {}
        layout |= self._trained(rank, str(layout.get("offload", "")))
        for meaning, reason in self.table.get("not_priced", {}).items():
            self.notes += [reason] if self._value(meaning) else []
        if software == "fsdp2":
            software = self.table.get("software", software)
            software = self.table.get("compiled", "torchtitan-compile") if self._value("compile") is True else software
        self.notes += self.fields.not_read(rf"({self.table['without_effect']})(\..*)?")
        return Configuration(model, layout, software, notes=self.notes)

    def _value(self, meaning: str) -> object:
        return self.fields.first(*self.table.get(meaning, []))

    def _text(self, meaning: str) -> str:
        value = self._value(meaning)
        return str(self.table.get("defaults", {}).get(meaning, "") if value is None else value).lower()

    def _model(self) -> str:
        """Returns the name of the model; that of a function in Python has underscores for points, too."""
        name = str(self._value("model") or "")
        if not self.table.get("is_function", False):
            return name
        parts = re.sub(r"^(q?(lora|dora)_)+", "", name.rpartition(".")[2]).split("_")[:7]
        signs = itertools.product("-.", repeat=len(parts) - 1)
        made = ("".join(itertools.chain(*zip(parts, (*one, ""), strict=True))) for one in signs)
        return next((known for one in made if (known := shipped(one))), name)

    def _usual_sequence(self) -> int:
        self.notes.append(f"the length of sequences is not in the file: {USUAL_SEQUENCE} tokens are taken")
        return USUAL_SEQUENCE

    def _processes(self) -> int | None:
        nodes, each, count = (self._value(one) for one in ("nodes", "processes_of_node", "processes"))
        if count is None and each is None and nodes is None:
            alone: int | None = self.table.get("alone")
            return alone
        number = self.fields.number
        if count is not None:
            return number(*self.table["processes"])
        return number(*self.table["nodes"], default=1) * number(*self.table["processes_of_node"], default=8)

    def _sharding(self, gpus: Gpus) -> tuple[dict[str, object], str]:
        named = self._value("deepspeed")
        stages = self.table.get("stage_of_zero", [])
        if named is True or (named is None and self.fields.first(*stages) is not None):  # the script has it
            waits = {"offload": "optimizer"} if self._value("offload_optimizer") is True else {}
            return {"zero": min(3, self.fields.number(*stages, default=0, least=0)), **waits}, "deepspeed-zero"
        name = str(named or "")
        parts = {key.partition(".")[2]: key for key in self.fields.values if key.startswith("fsdp_config.")}
        self.fields.asked.update(parts.values())
        if match := ZERO.fullmatch(name):
            offload = {"offload": "optimizer,parameters" if match[1] == "3" else "optimizer"} if match[2] else {}
            return {"zero": int(match[1]), **offload}, "deepspeed-zero"
        if name:
            found = finetuning.deepspeed_file(name, self.fields.where, gpus)
            self.notes += found.notes
            return finetuning.sharding(found), "deepspeed-zero"
        kind = str(self._value("fsdp") or "")
        if kind in ("", "ddp") and not parts and not self.table.get("always_shards", False):
            return {}, "fsdp2"
        part = Fields({name: self.fields.values[key] for name, key in parts.items()}, self.fields.where)
        layout = finetuning.fsdp(part, self.notes)
        shards = self.fields.number(*self.table.get("shards", ["dp_shard_size"]), default=1)
        copies = self.fields.number("dp_replicate_size", default=1)
        layout |= {"shard_ranks": shards} if copies > 1 and shards > 1 else {}
        offload = {"offload": "parameters,optimizer"} if self._value("fsdp_offload") is True else {}
        return layout | offload, "fsdp2"

    def _batch(self, gpus: Gpus, each: int) -> dict[str, object]:
        ranks, rows = finetuning.ranks(self.fields, gpus, each), self.table["batch"]
        micro = self.fields.number(*rows["micro"]["names"], default=rows["micro"]["default"])
        whole = rows.get("whole", {"names": []})["names"]
        usual = max(1, rows.get("together", 1) // (micro * (ranks or 1)))
        steps = self.fields.number(*rows["steps"]["names"], default=usual)
        batch = finetuning.batch(micro, steps, ranks)
        return batch | ({"global_batch": self.fields.number(*whole)} if self.fields.first(*whole) else {})

    def _dtype(self) -> str:
        """Returns the precision of products: autocast, or else that of the parameters."""
        named = self._text("dtype").removeprefix("torch.")
        stored = str(self.table.get("precision", "tf32")) if named in ("", "none") else DTYPES.get(named, "tf32")
        autocast = [one for one in ("fp8", "bf16", "fp16") if self.fields.first(one)]
        return next(iter(autocast), stored)

    def _rank(self) -> int | None:
        """Returns the rank of adapters, None if there are none."""
        rank, how = self.fields.number(*self.table["rank"], default=0, least=0), self._text("how")
        if "how" not in self.table:  # a rank alone says that there are adapters
            return rank or None
        return finetuning.rank_of("full" if how == "freeze" else how, rank or self.table["usual_rank"], self.notes)

    def _frozen(self, model: str) -> dict[str, object]:
        """Returns the first layers that are frozen: all but a few of a shipped model."""
        trained, known = self.fields.number(*self.table["trained_layers"], default=2), shipped(model)
        layers = models()[known]["layers"] if known else 0
        if layers == 0 and trained:
            self.notes.append("frozen weights are not priced: all weights train")
        return {"frozen": layers - trained} if layers > trained else {}

    def _trained(self, rank: int | None, offload: str) -> dict[str, object]:
        bits = self.fields.number(*self.table.get("bits", ["bits"]), default=0, least=0)
        four = (
            self._value("four_bits") is True or bits == 4 or self._text("model").rpartition(".")[2].startswith("qlora")
        )
        doubles = self.table.get("doubles", False) and self._value("double") is not False
        eight = self._value("eight_bits") is True or bits == 8
        self.notes += [] if bits in (0, 4, 8) else [f"weights in {bits} bits are not priced: they count as bf16"]
        named = [name.removeprefix("use_") for name in self.table.get("optimizers", []) if self.fields.first(name)]
        waits = [one for one in offload.split(",") if one]
        waits += ["activations"] if self._value("offload_activations") is True else []
        layout = finetuning.tuned(
            self.notes,
            rank=rank,
            targets=self._targets(),
            is_dora=self._value("dora") is True or self._text("how") == "dora",
            weights=("nf4-dq" if doubles else "nf4") if four else "int8" if eight else None,
            optimizer=[*named, self._text("optimizer").rpartition(".")[2]][0],
            offload=waits,
        )
        stage = self._text("stage").rpartition(".")[2]
        if stage not in ("", "sft", "pt", *self.table.get("supervised", [])):
            self.notes.append(f"the stage {stage[:60]} is not priced: it counts as supervised training")
        is_fused = self._value("fused") is True or "cut_cross_entropy" in str(self.fields.first("plugins"))
        return layout | (finetuning.fused_loss(self.notes) if is_fused else {})

    def _targets(self) -> object:
        if self._value("all_linear") is True:
            return "all"
        targets = self._value("targets")
        words = targets if isinstance(targets, list) else re.split(r"[\s,]+", str(targets)) if targets else []
        more = ["gate", "up", "down"] if self._value("targets_mlp") is True else []
        return [*words, *more] or None


def _flat(values: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Returns the fields of all parts by their names with dots."""
    found: dict[str, object] = {}
    for name, value in values.items():
        key = f"{before}{name}"
        is_part = isinstance(value, dict) and key.count(".") < DEEPEST
        found |= _flat(value, f"{key}.") if is_part and isinstance(value, dict) else {key: value}
    return found


RECIPES: Final = tuple(Recipe(table) for table in TABLES["recipes"])
