"""Which extra does ``pytest benches`` need? Without pytest-benchmark it ends with one error instead of one per test."""

import pytest


def pytest_configure(config):
    if not config.pluginmanager.has_plugin("benchmark"):
        raise pytest.UsageError("benches need pytest-benchmark: pip install '.[bench]'")
