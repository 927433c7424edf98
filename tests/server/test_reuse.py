"""A picture that is sent again is found by itself, by the key that sent it and no other."""

from typing import Any

import openai
import pytest

from rotatek.models import VisionLanguageModel
from rotatek.server.api_keys import Keys
from tests.fixtures import Picture
from tests.server.conftest import asked, client_of, served, tiny_door, uri

pytestmark = pytest.mark.slow
KEYS = ("first-key-of-the-door", "second-key-of-the-door")


def cached(client: openai.OpenAI, messages: list[dict[str, Any]], **given: Any) -> tuple[int, int]:
    """Cached tokens and visual tokens of an answer."""
    create: Any = client.chat.completions.create
    usage = create(model="tiny", messages=messages, max_tokens=2, **given).usage
    return usage.prompt_tokens_details.cached_tokens, usage.visual_tokens


def test_a_picture_sent_again_is_found_by_its_key_alone(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    shown = picture(224, 168, seed=5)
    door = tiny_door(vlm, keys=Keys(KEYS))
    engine = door.service.engine("tiny")
    with served(door) as address:
        one, other = (client_of(address, key) for key in KEYS)
        assert cached(one, asked(shown))[0] == 0
        hits = engine.pictures.hits
        for messages in (asked(shown, "Another question?"), asked(uri(shown, "BMP"), "And?")):
            found, visual = cached(one, messages)
            assert found == visual > 0, "any file of the same pixels"
        assert engine.pictures.hits == hits + 2
        assert cached(other, asked(shown))[0] == 0, "another key's pictures are not found"
        assert cached(other, asked(shown))[0] > 0
        assert cached(one, asked(picture(224, 168, seed=6)))[0] == 0
        small = {"extra_body": {"rotatek": {"max_pixels": 9000}}}
        assert cached(one, asked(shown), **small)[0] == 0, "another size"
