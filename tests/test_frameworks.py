"""Features of torch.distributed, and frameworks on it, train on nvcoll as one process does; `frameworks` has the features."""

import importlib.util
import os

import pytest

from frameworks.features import features
from frameworks.launcher import launch

BACKEND = os.environ.get("NVCOLL_TORCH_BACKEND", "nvcoll")
CASES = [(one, world_size) for one in features() for world_size in one.world_sizes]

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(900),  # of the first case of a file, whose set of processes runs them all
]


def cannot_run(one):
    """Returns why a feature cannot run here, or an empty string."""
    if one.needs and importlib.util.find_spec(one.needs) is None:
        return f"{one.needs} is not installed"
    return one.not_on.get(BACKEND, "")


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Returns a function that tells how a case ended. It launches the set of a case with all cases of the set to run."""
    asked = [item.callspec.params["case"] for item in request.session.items if "outcomes" in item.fixturenames]
    launched = {}

    def outcome(case):
        if case not in launched:
            one, world_size = case
            group = (one.file, one.makes_group, world_size)
            same = [other for other in asked if (other[0].file, other[0].makes_group, other[1]) == group]
            same = [other for other in same if not cannot_run(other[0])]
            names = [other[0].name for other in same]
            folder = tmp_path_factory.mktemp(f"{one.file}-{world_size}")
            found = launch(one.file, names, world_size, BACKEND, folder, one.makes_group)
            launched.update({other: found[other[0].name] for other in same})
        return launched[case]

    return outcome


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].file}-{case[0].name}-{case[1]}")
def test_it_trains_as_one_process_does(case, outcomes, record_property):
    reason = cannot_run(case[0])
    if reason:
        pytest.skip(reason)
    outcome = outcomes(case)
    record_property("seconds", outcome.seconds)
    if outcome.failure:
        pytest.fail(outcome.failure, pytrace=False)
