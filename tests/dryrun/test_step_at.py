"""Steps that a statement ends (`--step-at`), or writes of parameters: optimizers that are none of torch.optim."""

import pytest
from dryrun_children import PATIENT, children, gemm_flops

from nvcoll.dryrun.wire.statement import Statement

__all__ = ["children"]

pytestmark = PATIENT

SCRIPT = """import torch

class Sgd:
    def __init__(self, parameters):
        self.parameters = list(parameters)

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            parameter.add_(parameter.grad, alpha=-0.1)
            parameter.grad = None

model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)).cuda()
optimizer = Sgd(model.parameters())
unused = torch.optim.SGD(model.parameters())
for _ in range(9):
    for _ in range(2):
        model(torch.randn(64, 256, device="cuda", requires_grad=True)).square().mean().backward()
    optimizer.step(
    )
    unused.step()
"""

LINES = {"the call": 19, "its last line": 20, "the function": 8, "a statement in it": 9}


@pytest.fixture
def script(tmp_path):
    """A script with an optimizer of its own."""
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


@pytest.mark.parametrize("line", [LINES["the call"], LINES["the function"]])
def test_a_step_ends_when_the_statement_has_run(children, script, line):
    at = Statement.at(f"train.py:{line}", script.parent)
    [(out, run, recording)] = children.run(script, steps=3, step_at=list(at))
    assert run.status == "counted" and run.steps == 3, out
    assert gemm_flops(recording) == 2 * 3 * 2 * 64 * 2 * 256 * 1024, "two micro-batches, forward and backward"
    assert recording.optimizer == f"train.py:{line}"
    written = [op for op in recording.ops if op.name == "aten::add_" and not op.is_backward]
    assert len(written) == 4, "each parameter once"


def test_a_statement_is_found_by_each_of_its_lines(script):
    found = {what: Statement.at(f"{script}:{line}", script.parent)[2:] for what, line in LINES.items()}
    assert found["the call"] == found["its last line"] == (19, 20)
    assert found["the function"] == (9, 11)
    assert found["a statement in it"] == (9, 11)


@pytest.mark.parametrize("place", ["train.py", "other.py:3", "train.py:2", "train.py:step"])
def test_a_place_without_a_statement_is_refused(script, place):
    with pytest.raises(ValueError, match=r"no statement|no line of a file"):
        Statement.at(place, script.parent)


OWN = """import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)).cuda()
for _ in range(9):
    for _ in range(2):
        model(torch.randn(64, 256, device="cuda", requires_grad=True)).square().mean().backward()
        {each}
    {update}
    model.zero_grad()
"""

UPDATES = {
    "data": "for p in model.parameters(): p.data.mul_(0.9); p.data.add_(p.grad, alpha=-0.1)",
    "without gradients": "with torch.no_grad(): torch._foreach_add_(p := [*model.parameters()], [e.grad for e in p])",
}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_step_ends_with_the_last_write_of_parameters(children, tmp_path, update, steps):
    clip = "model[0].bias.data.clamp_(-1, 1)"
    (tmp_path / "train.py").write_text(OWN.format(each=clip, update=update))
    [(out, run, recording)] = children.run(tmp_path / "train.py", steps=steps)
    assert run.status == "counted" and run.steps == max(2, steps), out
    assert gemm_flops(recording) == 2 * 3 * 2 * 64 * 2 * 256 * 1024, "two micro-batches, forward and backward"
    assert recording.optimizer == "train.py:8 <module>"
    assert "steps end where the script writes parameters" in recording.assumed[-1].text
    assert dict(recording.memory.parts)["gradients"] >= 2 * 256 * 1024 * 4
    written = [op for op in recording.ops if op.name in ("aten::add_", "aten::_foreach_add_") and not op.is_backward]
    assert len(written) == (4 if "data" in update else 1), "each parameter once"


def test_an_optimizer_of_torch_ends_steps_in_place_of_writes(children, tmp_path):
    update = "for p in model.parameters(): p.data.add_(p.grad)"
    text = OWN.format(each=update, update="optimizer.step()")
    (tmp_path / "train.py").write_text(
        text.replace("for _ in range(9)", "optimizer = torch.optim.SGD(model.parameters())\nfor _ in range(9)")
    )
    [(out, run, recording)] = children.run(tmp_path / "train.py", steps=3)
    assert run.status == "counted" and run.steps == 3 and recording.optimizer == "SGD", out
    assert gemm_flops(recording) == 2 * 3 * 2 * 64 * 2 * 256 * 1024
    assert not any("steps end" in each.text for each in recording.assumed)
