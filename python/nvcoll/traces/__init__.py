"""Reads recorded steps from traces of torch.profiler, execution traces of Chakra, and compiled functions of JAX.

>>> from nvcoll.training import Machine  # doctest: +SKIP
>>> from nvcoll.traces import read  # doctest: +SKIP
>>> Machine("hgx-h100").predict(read("step.hlo")[0]).seconds  # doctest: +SKIP
0.021
"""

from nvcoll.traces.formats import opened, read
from nvcoll.traces.program import Trace

__all__ = ["Trace", "opened", "read"]
