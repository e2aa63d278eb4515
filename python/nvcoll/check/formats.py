"""The formats of logs: JSON of nccl-tests; lines of nccl-tests and of scripts of torch, also both in one file."""

from __future__ import annotations

from dataclasses import replace

from nvcoll.check import nccl_tests, nccl_tests_json, torch_scripts
from nvcoll.check.log import Log


def read(name: str, text: str) -> list[Log]:
    """Returns the tables of a log; one without rows is a log whose table is missing.

    Args:
        name: the file. Tables are ``name#1`` and so on if there are several.
        text: its content.
    """
    logs = nccl_tests_json.read(name, text) if nccl_tests_json.is_read(text) else nccl_tests.read(name, text)
    if others := [*torch_scripts.read(text, logs[0])]:
        logs = [*(log for log in logs if log.rows), *others]
    return [replace(log, name=f"{name}#{nth}" if len(logs) > 1 else name) for nth, log in enumerate(logs, 1)]
