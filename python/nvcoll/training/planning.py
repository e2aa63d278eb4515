"""`plan`: from model, layout and software to a step, and its price on a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import index
from os import PathLike
from typing import Final, SupportsIndex, Unpack

from nvcoll._nvcoll import Fabric, InvalidArgument, StepPrediction, StepPricer, WorkStep, fabric
from nvcoll.training.models import model_of, software_of
from nvcoll.training.options import SOFTWARE, Fields, PlanOptions
from nvcoll.training.trace import Document, Span, of_pipeline, of_streams

ONCE: Final = "data parallelism, optimizer"
"""The name of what a stage does once, after its last micro-batch."""


class Machine:
    """A machine on which steps are priced. It keeps what it learns of groups of ranks: use one for many steps.

    Args:
        on: the machine, or its name, as ``hgx-h100x64+ib-ndr-8``.
        gpus: the number of its GPUs that steps use, the first ones. Default: all.
        gpu: the model of the GPUs of a file that does not name it.
        version: a version of NCCL. Default: the newest whose release was read.
        settings: environment variables of NCCL.
        measured: bus bandwidths that the owner of the machine measured, which no price undercuts: rows of
            ``{"collectives": ["all_gather"], "nodes": [2, 4], "busbw_gbps": [185, 119]}``.

    Raises:
        InvalidArgument: a name is unknown, or the peaks of the GPU are not known.
    """

    def __init__(
        self,
        on: str | PathLike[str] | Fabric,
        gpus: int | None = None,
        *,
        gpu: str | None = None,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        measured: Sequence[Fields] = (),
    ) -> None:
        self.fabric = fabric(on, gpu=gpu)
        self.gpus = self.fabric.world_size if gpus is None else gpus
        rows = json.dumps([dict(row) for row in measured])
        self.pricer = StepPricer(self.fabric, self.gpus, version=version, settings=settings, measured=rows)

    def __repr__(self) -> str:
        """The name of the machine, and the number of GPUs."""
        return f"<Machine {self.fabric.name}, {self.gpus} GPUs>"

    def predict(self, step: WorkStep) -> StepPrediction:
        """Prices a step.

        Raises:
            InvalidArgument: the machine lacks what the step needs.
        """
        return self.pricer.predict(step)

    def timeline(self, step: WorkStep) -> Document:
        """Returns what all stages do in a step, as `nvcoll.training.trace.save` writes it.

        The passes of all micro-batches in virtual time, and after them what data parallelism and the optimizer take.
        Of a recorded step: what each rank does on its streams.

        Raises:
            InvalidArgument: the machine lacks what the step needs.
        """
        if step.is_recorded:
            return of_streams(json.loads(self.pricer.timeline(step)), json.loads(step.to_json()))
        send_s, timeline = json.loads(self.pricer.timeline(step))
        document = of_pipeline(timeline, send_s=send_s, title=step.name)
        ends = {span["stage"]: span["end_s"] for span in document["spans"]}
        for role in self.predict(step).roles:
            for stage in role.stages:
                start, end = ends[stage], ends[stage] + role.once_s
                span = Span(stage=stage, stream="compute", name=ONCE, start_s=start, end_s=end)
                document["spans"].append(span)
        return document

    def plan(self, model: str | Fields, **how: Unpack[PlanOptions]) -> StepPrediction:
        """Plans a step and prices it; arguments as of `plan`."""
        return self.pricer.plan(asked(model, how))


def asked(model: str | Fields, how: PlanOptions) -> str:
    """Returns what the planner is asked, as JSON: model, software, and the options of the layout.

    Raises:
        InvalidArgument: a name is unknown.
    """
    if unknown := sorted(how.keys() - PlanOptions.__annotations__.keys()):
        known = ", ".join(PlanOptions.__annotations__)
        raise InvalidArgument(f"no option of a plan is called `{unknown[0]}`: choose from {known}")
    software = software_of(how.get("software", SOFTWARE), how.get("overrides"))
    options = {word: value for word, value in how.items() if word not in ("software", "overrides")}
    return json.dumps({"model": model_of(model), "software": software, "options": options}, default=_number)


def _number(value: object) -> int:
    """Returns a whole number of another type, as numpy's.

    Raises:
        InvalidArgument: it is none.
    """
    if not isinstance(value, SupportsIndex):
        raise InvalidArgument(
            f"an option of a plan is of type {type(value).__name__}: pass a number, a word or a mapping"
        )
    return index(value)


def plan(
    model: str | Fields,
    *,
    on: str | PathLike[str] | Fabric,
    gpus: int | None = None,
    gpu: str | None = None,
    version: str | None = None,
    settings: Mapping[str, str | int] | None = None,
    **how: Unpack[PlanOptions],
) -> StepPrediction:
    """Predicts a training step on a machine.

    Args:
        model: the name of a model (`models`), a TOML file, or its fields.
        on: one machine, as in `nvcoll.machines`.
        gpus: the number of GPUs. Default: all of the machine.
        gpu: the model of the GPUs of a file that does not name it.
        version: a version of NCCL. Default: the newest whose release was read.
        settings: environment variables of NCCL.
        how: what is not the default: batch, layout, precision and software, as `PlanOptions` has them; also the
            ``layout`` of a `StepPrediction`.

    Returns:
        A `StepPrediction`.

    Raises:
        InvalidArgument: a name is unknown, or the layout breaks a rule, which the message says.
    """
    return Machine(on, gpus, gpu=gpu, version=version, settings=settings).plan(model, **how)
