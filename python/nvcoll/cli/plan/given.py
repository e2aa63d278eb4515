"""What ``plan`` and ``serve`` read of the command line alike: numbers, times, fields, prices, a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, cast

from nvcoll._nvcoll import Fabric, InvalidArgument, StepPrediction
from nvcoll.training import configurations
from nvcoll.training.models import is_model, model_of
from nvcoll.training.options import PlanOptions
from nvcoll.training.prediction import host_ram
from nvcoll.training.torchtitan_python import is_function


def numbers(text: str | None) -> list[int]:
    """Reads numbers with commas between.

    Raises:
        InvalidArgument: one is no number.
    """
    try:
        return [int(one) for one in text.split(",")] if text else []
    except ValueError:
        raise InvalidArgument(f"-n {text} is no number of GPUs: pass one, or several with commas") from None


def fields(given: Sequence[str]) -> dict[str, Any]:
    """Reads ``--set NAME=VALUE``; a value is JSON, as 25 or true, or else a word, as cudnn.

    Raises:
        InvalidArgument: one has no value.
    """
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not (name and sign and value):
            raise InvalidArgument(
                f"--set {one}: pass NAME=VALUE, as bucket_mb=25, overlaps_data=false or attention=cudnn"
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def configured(
    files: Sequence[str], counts: Sequence[int], machines: Sequence[Fabric] = ()
) -> tuple[str | dict[str, Any], PlanOptions, list[str]]:
    """Returns the model and the options that files say, the last first, and what was assumed.

    The first may be the name of a model.

    Raises:
        InvalidArgument: one cannot be read, or none has a model.
    """
    how: dict[str, Any] = {}
    sizes = {one.world_size for one in machines}
    here = sizes.pop() if len(sizes) == 1 else None
    assumed: list[str] = []
    for nth, file in enumerate(files):
        is_folder = (Path(file) / "config.json").is_file()
        if (
            nth == 0
            and not is_folder
            and not is_function(file)
            and (not Path(configurations.script(file)[0]).is_file() or is_model(file))
        ):
            how["model"] = file
            continue
        found = configurations.read(file, gpus=counts[0] if counts else None, machine_gpus=here)
        read = found.words()
        if "model" in how and "model" in read:
            del read["model"]
            found.notes.append(f"its model is not used, {files[0]} is")
        how |= read
        assumed += [f"{file}: {note}" for note in found.notes]
        if isinstance(named := read.get("model"), str):
            _check_named(named, file)
    if "model" not in how:
        raise InvalidArgument(f"{files[0]} has no model: pass one, as nvcoll plan llama3-8b --config {files[0]}")
    return how.pop("model"), cast(PlanOptions, how), assumed


def _check_named(model: str, file: str) -> None:
    """Refuses a model that a file names and nvcoll does not ship.

    Raises:
        InvalidArgument: there is no such model.
    """
    try:
        model_of(model)
    except (InvalidArgument, OSError) as error:
        reason = f"its model {model} is not there" if isinstance(error, OSError) else str(error)
        remedy = f"the file of a model comes first: nvcoll plan MODEL --config {file}"
        raise InvalidArgument(f"{file}: {reason}; {remedy}") from None


def job_gpus(read: PlanOptions, machines: Sequence[Fabric]) -> list[int]:
    """Returns the number of GPUs of the job that files say, if each machine has more; otherwise nothing."""
    sizes = [read.get(word) or 1 for word in ("tp", "pp", "cp", "dp")]
    job = prod(size for size in sizes if isinstance(size, int))
    return [job] if "dp" in read and all(job < one.world_size for one in machines) else []


def paged(how: PlanOptions) -> list[str]:
    """Returns what is assumed of states of the optimizer that the driver moves."""
    is_paged = how.get("optimizer", "").startswith("paged")
    return ["paged states of the optimizer wait in RAM, and moving them takes no time"] if is_paged else []


def ram(found: Iterable[StepPrediction]) -> list[str]:
    """Returns what is assumed of the RAM in which something waits, where a machine has no size or several."""
    unsure = {one.machine.name: host_ram(one) for one in found if one.ram_gib and len({*(one.host_ram_gib or ())}) != 1}
    return [
        f'RAM of a host of {name}: {size}; say yours, as --on "{name} with ram 1024"' for name, size in unsure.items()
    ]


def prices(given: Sequence[str] | None, machines: Sequence[Fabric]) -> dict[str, float]:
    """Reads prices of a GPU and hour: one for all machines, or one for each.

    Raises:
        InvalidArgument: one is no price, or their number fits no number of machines.
    """
    try:
        prices = [float(price) for one in given or () for price in one.split(",")]
    except ValueError:
        raise InvalidArgument(
            "--dollars-per-gpu-hour takes numbers, as 2.5, or one for each machine, as 2.5,4"
        ) from None
    if any(not price >= 0 for price in prices):
        raise InvalidArgument(f"--dollars-per-gpu-hour has the price {min(prices):g}: pass 0 or more")
    if prices and len(prices) not in (1, len(machines)):
        raise InvalidArgument(f"there are {len(prices)} prices for {len(machines)} machines: pass one, or one for each")
    return dict(
        zip([one.name for one in machines], prices * len(machines) if len(prices) == 1 else prices, strict=False)
    )


def seconds(option: str, text: str, remedy: str) -> float:
    """Reads a time: milliseconds as 20ms, seconds as 0.5s or 0.5.

    Raises:
        InvalidArgument: it is none; ``remedy`` says what to pass.
    """
    number, unit = (text[:-2], 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        return float(number) * unit
    except ValueError:
        raise InvalidArgument(f"{option} {text} is no time: pass {remedy}") from None


def titled(name: str, model: str | dict[str, Any]) -> str:
    """Returns what a report calls a model."""
    return name if isinstance(model, str) else str(model.get("name", name))
