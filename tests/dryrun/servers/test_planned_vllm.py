"""The installed vLLM makes the iterations that are planned, in its default mode."""

import importlib.util
import json

import agreement
import pytest

from nvcoll.testing import dryrun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]

LAYERS = 4


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("name", agreement.FAMILIES)
def test_the_installed_server_makes_the_iterations_that_are_planned(name, tp, tmp_path):
    model = json.loads((agreement.RECORDED / "models" / f"{name}.json").read_text())
    kinds = {"layer_types": model["layer_types"][:LAYERS]} if "layer_types" in model else {}
    (tmp_path / "config.json").write_text(json.dumps({**model, "num_hidden_layers": LAYERS, **kinds}))
    words = ("serve", str(tmp_path), "--tensor-parallel-size", str(tp))
    found = dryrun("vllm", *words, on=agreement.ON, world_size=tp, serve=True, is_cached=False, time_limit=800)
    for words, own, plan in agreement.compared(found.recording, name, tp, LAYERS):
        assert plan.flops == pytest.approx(own.flops, rel=0.05), words
        assert plan.calls == own.calls, words
