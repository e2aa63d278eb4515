"""A tiny model, its data, and its training by plain torch in one process: what each feature is compared with.

Models are of float64 where a feature does not ask for another dtype. Ranks add gradients in another order than one
process does, so parameters differ by rounding: about 1e-16 an addition. An update that is lost, or counted twice,
changes them by more than 1e-4. `ROUNDING` lies between.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import nn

ROUNDING = 1e-10
"""The tolerance of parameters and losses of float64. Chosen: see above."""

BFLOAT16 = 2.0**-5
"""What bfloat16 may change in the update, relative: some roundings of 2**-9 each, in forward, backward and sums."""

STEPS = 3
RATE = 0.1
WIDTH = 8

Batch = tuple[torch.Tensor, torch.Tensor]


def model(dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Sequential:
    """Returns a network of three layers, the same on each rank."""
    torch.manual_seed(seed)
    layers = nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    return nn.Sequential(*layers).to(dtype)


def batches(size: int = 8, steps: int = STEPS, dtype: torch.dtype = torch.float64) -> list[Batch]:
    """Returns for each step ``size`` samples: arrays (size, WIDTH) and (size, 4), the same on each rank."""
    torch.manual_seed(1)
    return [(torch.randn(size, WIDTH, dtype=dtype), torch.randn(size, 4, dtype=dtype)) for _ in range(steps)]


def part(batch: Batch, rank: int, world_size: int) -> Batch:
    """Returns a rank's samples of a batch: as many on each rank."""
    return batch[0][rank::world_size], batch[1][rank::world_size]


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
    """Returns an optimizer whose update is linear in the gradients: it does not enlarge their rounding."""
    return torch.optim.SGD(parameters, lr=RATE, momentum=0.9)


def train(
    trained: nn.Module,
    data: Iterable[Batch],
    made: torch.optim.Optimizer | None = None,
    after_backward: Callable[[], object] = lambda: None,
) -> list[torch.Tensor]:
    """Trains a model, a step for each batch. Returns the losses."""
    made = made or optimizer(trained.parameters())
    losses = []
    for x, y in data:
        made.zero_grad()
        loss = nn.functional.mse_loss(trained(x), y)
        loss.backward()
        after_backward()
        made.step()
        losses.append(loss.detach())
    return losses


def trained_alone(start: nn.Module, data: Iterable[Batch], **told: object) -> nn.Module:
    """Returns a copy of a model after the training of one process, which sees whole batches."""
    alone = copy.deepcopy(start)
    train(alone, data, **told)
    return alone


def assert_same(found: nn.Module | dict, expected: nn.Module, tolerance: float = ROUNDING) -> None:
    """Fails if the parameters of two models differ.

    Args:
        found: the model, or its parameters by name.
        expected: the model of one process.
        tolerance: of each element, absolute and relative.
    """
    parameters = found if isinstance(found, dict) else dict(found.named_parameters())
    wanted = dict(expected.named_parameters())
    assert parameters.keys() == wanted.keys(), (sorted(parameters), sorted(wanted))
    for name, value in wanted.items():
        value, got = value.detach(), parameters[name].detach()
        torch.testing.assert_close(got, value, rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}")


def assert_near(found: nn.Module | dict, start: nn.Module, expected: nn.Module, fraction: float) -> None:
    """Fails if the parameters of two models differ by more than a part of what the training changed.

    Args:
        found: the model, or its parameters by name.
        start: the model before the training.
        expected: the model of one process.
        fraction: the part, of the Euclidean norms over all parameters.
    """
    parameters = found if isinstance(found, dict) else dict(found.named_parameters())
    wanted, before = dict(expected.named_parameters()), dict(start.named_parameters())
    assert parameters.keys() == wanted.keys(), (sorted(parameters), sorted(wanted))

    def norm(differences):
        return torch.cat([one.detach().double().flatten() for one in differences]).norm().item()

    error = norm(parameters[name] - wanted[name] for name in wanted)
    change = norm(wanted[name] - before[name] for name in wanted)
    assert 0 < error <= fraction * change, f"parameters differ by {error / change:.2e} of their change"
