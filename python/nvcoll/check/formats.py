"""The formats of logs: the first that recognises a text reads it; nccl-tests is the last."""

from __future__ import annotations

from nvcoll.check import nccl_tests, nccl_tests_json
from nvcoll.check.log import Log

FORMATS = ((nccl_tests_json.is_read, nccl_tests_json.read),)


def read(name: str, text: str) -> list[Log]:
    """Returns the tables of a log; one without rows is a log whose table is missing.

    Args:
        name: the file.
        text: its content.
    """
    for is_read, read_it in FORMATS:
        if is_read(text):
            return read_it(name, text)
    return nccl_tests.read(name, text)
