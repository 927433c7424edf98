"""A checkpoint to damage, and to ask."""

from pathlib import Path

import pytest

from tests.tiny import save_small_pocket


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with random weights, in two shards as the shipped one is in several."""
    path = tmp_path_factory.mktemp("saved")
    save_small_pocket(path)
    return path
