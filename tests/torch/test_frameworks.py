"""torch.distributed and frameworks on it train on nvcoll as one process does; `frameworks` has the features."""

import importlib.util
import os

import pytest
from frameworks.features import features
from frameworks.launcher import launch

BACKEND = os.environ.get("NVCOLL_TORCH_BACKEND", "nvcoll")
CASES = [(one, world_size) for one in features() for world_size in one.world_sizes]

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(1800),  # of the first case of a set of processes, which runs all cases of the set
]


def cannot_run(one):
    """Returns why a feature cannot run here, or an empty string."""
    is_missing = one.needs and importlib.util.find_spec(one.needs) is None
    return f"{one.needs} is not installed" if is_missing else ""


def set_of(case):
    """Returns what tells the sets of processes apart: torch's own features share one, those of a framework another."""
    one, world_size = case
    return one.file if one.needs else "torch", one.makes_group, world_size


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Returns a function that tells how a case ended. It launches the set of the case, for all its cases."""
    asked = [item.callspec.params["case"] for item in request.session.items if item.module is request.module]
    launched = {}

    def outcome(case):
        if case not in launched:
            name, makes_group, world_size = set_of(case)
            same = [other for other in asked if set_of(other) == set_of(case) and not cannot_run(other[0])]
            names = [other[0].full_name for other in same]
            folder = tmp_path_factory.mktemp(f"{name}-{world_size}")
            found = launch(names, world_size, BACKEND, folder, makes_group)
            launched.update({other: found[other[0].full_name] for other in same})
        return launched[case]

    return outcome


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].full_name}-{case[1]}")
def test_it_trains_as_one_process_does(case, outcomes, request):
    reason = cannot_run(case[0])
    if reason:
        pytest.skip(reason)
    outcome = outcomes(case)
    request.node.user_properties.append(("seconds", outcome.seconds))
    if outcome.failure:
        pytest.fail(outcome.failure, pytrace=False)
