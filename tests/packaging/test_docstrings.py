"""Docstrings are written in Google's style, and say of parameters what the signature says.

`make api` makes the reference from them. Read without importing anything, by Griffe.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

pytestmark = pytest.mark.unversioned

ROOT = Path(__file__).resolve().parents[2]


def documented(item: griffe.Object) -> Iterator[griffe.Docstring]:
    """Every docstring of an object and of what it defines itself."""
    if item.docstring is not None:
        yield item.docstring
    for member in item.members.values():
        if isinstance(member, griffe.Object):
            yield from documented(member)


@pytest.mark.parametrize("package", ["rotatek", "kernels", "viz"])
def test_docstrings_can_be_read(package: str, caplog: pytest.LogCaptureFixture) -> None:
    module = griffe.load(package, search_paths=[ROOT], allow_inspection=False)
    assert isinstance(module, griffe.Module)
    assert Path(str(module.filepath)).is_relative_to(ROOT)
    logging.getLogger("griffe").setLevel(logging.WARNING)
    with caplog.at_level(logging.WARNING, logger="griffe"):
        found = [docstring.parse("google") for docstring in documented(module)]
    assert len(found) > 50
    assert not caplog.messages, "\n".join(caplog.messages)
