"""Responses that `generate` of transformers makes: their lengths are given, as their tokens have no values."""

import pytest
from dryrun_children import PATIENT, children

__all__ = ["children"]

pytestmark = PATIENT

CRITERIA = """
import torch


class EosTokenCriteria:
    def __init__(self, end):
        self.eos_token_id = torch.tensor([end])

    def __call__(self, tokens, scores, **more):
        self.eos_token_id = self.eos_token_id.to(tokens.device)
        return torch.isin(tokens[:, -1:], self.eos_token_id).any(dim=-1)
"""

UTILS = """
import torch
from transformers.generation.stopping_criteria import EosTokenCriteria


@torch.no_grad()
def generate(model, tokens, most, end):
    ends, runs = EosTokenCriteria(end), torch.ones(len(tokens), dtype=torch.long, device=tokens.device)
    for _ in range(most):
        chosen = model(tokens)[:, -1].argmax(-1) * runs
        tokens = torch.cat([tokens, chosen[:, None]], dim=-1)
        runs = runs & ~ends(tokens, None)
        if runs.max() == 0:
            break
    return tokens
"""

TRAINS = """
import torch
from transformers.generation.utils import generate

model = torch.nn.Sequential(torch.nn.Embedding(32000, 64), torch.nn.Linear(64, 32000)).cuda()
optimizer = torch.optim.SGD(model.parameters())
prompt = torch.full((4, 8), 5, device="cuda")
while True:
    tokens = generate(model, prompt, 12, END)
    made = tokens[:, 8:] == END
    print("lengths", torch.where(made.any(1), made.int().argmax(1) + 1, tokens.shape[1] - 8).tolist(), tokens.shape[1])
    model(tokens).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def lengths(children, tmp_path):
    """Returns a function: the lengths of responses and of the batch in a step, and the recording."""
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "stopping_criteria": CRITERIA, "utils": UTILS}.items():
        (package / f"{name}.py").write_text(text)
    (package.parent / "__init__.py").touch()

    def made(end, **more):
        (tmp_path / "train.py").write_text(TRAINS.replace("END", str(end)))
        [(out, run, recording)] = children.run(tmp_path / "train.py", **more)
        assert run.status == "counted", out
        line = next(line for line in out.splitlines() if line.startswith("lengths"))
        return line.removeprefix("lengths "), recording

    return made


@pytest.mark.parametrize("end", [0, 2, 31999])
def test_no_response_ends_by_chance_if_nobody_says_how_long_it_is(lengths, end):
    found, recording = lengths(end)
    assert found == "[12, 12, 12, 12] 20"
    assert any("as long as the script allows: --response-tokens" in one.text for one in recording.assumed)


@pytest.mark.parametrize(
    ("between", "found"),
    [([5, 5], "[5, 5, 5, 5] 13"), ([2, 10], "[3, 5, 7, 9] 17"), ([9, 99], "[12, 12, 12, 12] 20")],
)
def test_responses_have_the_lengths_that_are_given_and_no_more_than_the_script_allows(lengths, between, found):
    assert lengths(2, response_tokens=between)[0] == found


def test_generation_is_a_pass_of_its_own_at_the_line_of_generate(lengths):
    _, recording = lengths(2, response_tokens=[5, 5])
    assert recording.without_gradients == {}
    (_, first), (_, then) = recording.passes[1:]
    assert first.endswith(" generate") and then == ""


def test_a_mask_without_elements_is_known(children, tmp_path):
    text = "rows = torch.randn(64, 4096, device='cuda')[:0]\nassert rows[rows > 0].shape == (0,)\nsys.exit(7)"
    (tmp_path / "masks.py").write_text(f"import sys, torch\n{text}")
    [(out, run, _)] = children.run(tmp_path / "masks.py")
    assert run.exit_status == 7, out
