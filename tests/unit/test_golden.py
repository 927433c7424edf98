"""The settings that must not change answer as `tests/golden.json` has it."""

import pytest

from rotatek.engine.engine import Engine
from tests import golden


@pytest.mark.slow
@pytest.mark.parametrize("picture", ["sign.png"])
def test_answers_and_bytes_are_those_of_the_file(picture: str) -> None:
    assert golden.differences(Engine("pocket", "cpu"), picture, turns=1) == []
