"""Every public name has an example in its docstring, for ``help`` and the reference, that runs when copied alone.

Docstrings of the extension come from its stub, which ``tools/generate/stub.py --check`` compares with it.
"""

import ast
import doctest
import inspect
from pathlib import Path

import pytest

import nvcoll
from nvcoll import _nvcoll

NAMES = [name for name in nvcoll.__all__ if name != "__version__"]
STUB = ast.parse(Path(_nvcoll.__file__).with_name("_nvcoll.pyi").read_text())
IN_STUB = {one.name: ast.get_docstring(one) for one in STUB.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}


def docstring_of(name: str) -> str:
    """Returns the docstring of the stub, or of a name that Python defines."""
    texts = [IN_STUB.get(name), inspect.getdoc(nvcoll if name == "nvcoll" else getattr(nvcoll, name))]
    return next((text for text in texts if text and ">>>" in text), "")


@pytest.mark.parametrize("name", ["nvcoll", *NAMES])
def test_the_example_of_a_public_name_runs_alone(name):
    test = doctest.DocTestParser().get_doctest(docstring_of(name), {}, name, None, None)
    assert test.examples, f"nvcoll.{name} has no example in its docstring"
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=failures.append)
    assert not failures, "".join(failures)
