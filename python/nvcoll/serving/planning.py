"""`serve`: a layout of a model server on a machine. `layouts`: all usual ones, best first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from os import PathLike
from typing import Any, Unpack, cast

from nvcoll._nvcoll import Fabric, InvalidArgument, ServingPrediction
from nvcoll.serving.options import SIZES, ServeOptions, asked
from nvcoll.training.planning import Machine


def serve(
    model: str | Mapping[str, Any],
    *,
    on: str | PathLike[str] | Fabric | Machine,
    gpus: int | None = None,
    **how: Unpack[ServeOptions],
) -> ServingPrediction:
    """Predicts what requests see of a model server.

    Requests are sent as benchmarks do: ten times as many as are under way at once, the first all together; times are
    means. Lengths differ by a tenth from the mean.

    Args:
        model: as of `nvcoll.training.plan`, or a folder with the model's config.json.
        on: one machine, as in `nvcoll.machines`.
        gpus: the number of its GPUs. Default: all, by copies of the server.
        how: what is not the default, as `ServeOptions` has it. Without ``tp`` and ``pp`` the best layout that fits.

    Raises:
        InvalidArgument: a name is unknown, the layout breaks a rule, or no layout has room for the model.
    """
    found, refused = layouts(model, on=on, gpus=gpus, **how)
    if not found:
        raise InvalidArgument(next(iter(refused)))
    return found[0]


def layouts(
    model: str | Mapping[str, Any],
    *,
    on: str | PathLike[str] | Fabric | Machine,
    gpus: int | None = None,
    **how: Unpack[ServeOptions],
) -> tuple[list[ServingPrediction], Mapping[str, int]]:
    """Predicts all usual layouts of a server on GPUs of a machine; arguments are those of `serve`.

    Returns:
        The layouts, most tokens per second first; and how many others there are by the reason why they cannot be.

    Raises:
        InvalidArgument: a name is unknown.
    """
    machine = on if isinstance(on, Machine) else Machine(on, gpus)
    request = asked(model, how)
    if record := how.get("record"):
        from nvcoll.serving.recorded import recorded  # loads the dry run

        request["recorded"] = recorded(record, str(model), machine, cast(Mapping[str, Any], how))
        given = {word: how[word] for word in SIZES if how.get(word)}  # type: ignore[literal-required]
        how = cast(ServeOptions, {**how, "tp": 1, "pp": 1, "ep": 1, "dp_attention": 1, **given})
    sizes = list(_sizes(machine.gpus, cast(Mapping[str, Any], how), has_experts="experts" in request["model"]))
    if not sizes:
        words = ", ".join(f"{word} {how[word]}" for word in SIZES if how.get(word))  # type: ignore[literal-required]
        return [], Counter([f"{words} is no layout of {machine.gpus} GPUs: TP x PP x copies must be their number"])
    answers = machine.pricer.serve([json.dumps({**request, "layout": one}) for one in sizes])
    found = [answer for answer, _ in answers if answer is not None]
    refused = Counter(why for answer, why in answers if answer is None)
    return sorted(found, key=lambda one: -one.tokens_per_second), refused


def _sizes(gpus: int, how: Mapping[str, Any], *, has_experts: bool) -> Iterator[dict[str, int]]:
    """Yields layouts of a number of GPUs: sizes that are given, and powers of two of the others."""

    def tried(word: str, most: int) -> Sequence[int]:
        given = how.get(word)
        return [given] if given else [size for size in (2**nth for nth in range(most.bit_length())) if size <= most]

    for tp, pp in product(tried("tp", gpus), tried("pp", gpus)):
        copies = how.get("copies") or gpus // (tp * pp)
        if copies * tp * pp != gpus and not (how.get("tp") and how.get("pp") and how.get("copies")):
            continue
        of_experts = tp if has_experts else 1
        for ep, attention in product(tried("ep", of_experts), tried("dp_attention", of_experts)):
            if how.get("dp_attention") or attention in (1, ep):
                words = {"tp": tp, "pp": pp, "ep": ep, "dp_attention": attention, "copies": copies}
                yield {SIZES[word]: size for word, size in words.items()}
