"""Model servers on machines that you do not have: first token, time of a token, tokens per second, room for requests.

>>> import nvcoll.serving
>>> found = nvcoll.serving.serve("llama3-8b", on="hgx-h100", gpus=1, concurrency=4)
>>> found.words, 5e-3 < found.tpot_s < 8e-3, found.cache_tokens > 400_000
('TP 1', True, True)

============  ========================================================================================================
``options``   what is asked: lengths and number of requests, precision, layout
``planning``  `serve`: one layout on a machine; `layouts`: all usual ones, best first
``report``    `ServingReport`: the output of ``nvcoll serve``
``page``      the same as a page with charts
============  ========================================================================================================
"""

from nvcoll._nvcoll import ServingPrediction
from nvcoll.serving.options import ServeOptions
from nvcoll.serving.planning import layouts, serve
from nvcoll.serving.report import ServingReport

__all__ = ["ServeOptions", "ServingPrediction", "ServingReport", "layouts", "serve"]
