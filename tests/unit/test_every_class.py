"""Every image-text-to-text class of the installed transformers answers, or is refused in one
sentence; the table of docs/families.md says which."""

from importlib.util import find_spec

import pytest
from transformers import __version__ as transformers_version
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from docs import walk
from tests.walk.outcome import GROUPS, REFUSED, UNTRIED, outcome

pytestmark = pytest.mark.filterwarnings("ignore")  # of classes that are not ours
KNOWN = {row["type"]: row for row in walk.read()["classes"]}
MISSING = [name for name in walk.read()["packages"] if find_spec(name) is None]


@pytest.mark.parametrize("kind", MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
def test_a_class_answers_or_is_refused(kind: str) -> None:
    found = outcome(kind)
    if found.group == REFUSED:
        assert found.sentence.endswith(".") and "\n" not in found.sentence
    if found.group == UNTRIED and any(name in found.sentence for name in MISSING):
        return  # the committed walk had the package
    if walk.read()["transformers"] == transformers_version:
        assert (found.group, found.sentence) == (KNOWN[kind]["group"], KNOWN[kind]["sentence"])


def test_the_table_names_every_class() -> None:
    assert set(walk.GROUPS) == set(GROUPS)
    drawn = walk.table()
    assert all(kind in drawn for kind in KNOWN)
    assert len(KNOWN) == len(walk.read()["classes"])
