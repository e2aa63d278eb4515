"""What the mark `ranks` shows of a failing test of torch."""

import pytest

pytest.importorskip("torch")
pytest_plugins = "pytester"
pytestmark = pytest.mark.timeout(240)


def test_a_failure_shows_the_line_of_the_test_and_none_of_nvcoll_or_torch(pytester):
    pytester.makepyfile("""
import pytest, torch, torch.distributed as dist

@pytest.mark.ranks(2)
def test_differs():
    dist.all_reduce(torch.ones(3 + dist.get_rank()))
""")
    text = "\n".join(pytester.runpytest_subprocess("-p", "no:cacheprovider").outlines)
    assert "rank 0: call 1, all_reduce of 3 float32" in text and ">       dist.all_reduce(" in text
    assert "Mismatch: rank 0 called all_reduce" in text and "Captured log" not in text
    assert "nvcoll/torch/" not in text and "c10d" not in text and "direct cause" not in text
