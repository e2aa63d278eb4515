"""Steps of training on machines that you do not have: time, memory, what is exposed, what to try.

>>> import nvcoll.training
>>> step = nvcoll.training.plan("llama3-70b", on="hgx-h100x8+ib-ndr-8", tp=8, pp=2, global_batch=128)
>>> step.fit, round(step.seconds), max(step.parts, key=step.parts.get)
('fits', 14, 'gemm')

==================  ====================================================================================================
``models``          models by name, from a file, or as a mapping
``options``         the options of a step, of `plan`, ``nvcoll plan`` and files: tp, pp, dp, cp, ep, zero, dtype
``planning``        `plan`: model, layout and software to a step, and its price on a machine
``prediction``      the words of `StepPrediction`, the price of a step
``sweep``           `sweep`: many layouts, best first; `neighbours`: what to try next
``configurations``  `read_configuration`: model and layout from the files of frameworks
``trace``           the timeline of a step for Perfetto and Chrome
``page``            a step as one HTML page, with charts and tables
``report``          `Report`: the output of ``nvcoll plan``, ``dryrun`` and ``price``
==================  ====================================================================================================
"""

from nvcoll._nvcoll import (
    Calibration,
    CollectivePrice,
    LinePrice,
    MemoryTable,
    RolePrice,
    StepPrediction,
    WorkStep,
)
from nvcoll.training.configurations import read as read_configuration
from nvcoll.training.fields import Configuration
from nvcoll.training.models import models, software
from nvcoll.training.options import PlanOptions
from nvcoll.training.planning import Machine, plan
from nvcoll.training.report import Report
from nvcoll.training.sweep import Sweep, neighbours, sweep

__all__ = [
    "Calibration",
    "CollectivePrice",
    "Configuration",
    "LinePrice",
    "Machine",
    "MemoryTable",
    "PlanOptions",
    "Report",
    "RolePrice",
    "StepPrediction",
    "Sweep",
    "WorkStep",
    "models",
    "neighbours",
    "plan",
    "read_configuration",
    "software",
    "sweep",
]
