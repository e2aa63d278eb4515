"""Planned iterations are those that the server itself makes in a dry run: of each family of models, at two sizes."""

import agreement
import pytest

CASES = {f"{name}-tp{tp}": (name, tp, recording) for name, tp, recording in agreement.recordings()}


def test_each_family_was_recorded():
    assert {name for name, *_ in CASES.values()} == set(agreement.FAMILIES)


@pytest.mark.parametrize("case", CASES)
def test_a_planned_iteration_is_the_one_that_the_server_itself_makes(case):
    name, tp, recording = CASES[case]
    for words, own, plan in agreement.compared(recording, name, tp, agreement.layers_of(name)):
        assert plan.flops == pytest.approx(own.flops, rel=0.02), words
        assert plan.nbytes == pytest.approx(own.nbytes, rel=0.04), words
        assert plan.seconds == pytest.approx(own.seconds, rel=0.11), words
        assert plan.calls == own.calls, words
