"""Questions to stored pictures, replayed and launched."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from PIL import Image
from torch import Tensor

from rotatek.bridge.state_layers import key_layers
from rotatek.cache.question_graph import QuestionGraphs
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import feed
from rotatek.engine.side_by_side import SideBySide
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.pictures.reading import PictureReader


def read(vlm: VisionLanguageModel, settings: Settings, *images: Image.Image) -> list[RotateKCache]:
    reader, found = PictureReader(vlm, settings), []
    for image in images:
        shown = make_request(image, "?").images
        found.append(reader.read(shown, reader.look(shown)))
    return found


def words(count: int, seed: int) -> Tensor:
    return torch.randint(65, 90, (1, count), generator=torch.Generator().manual_seed(seed))


def asked(
    vlm: VisionLanguageModel, caches: list[RotateKCache], ids: Tensor
) -> tuple[Tensor, list[RotateKCache]]:
    """Logits behind a question, and the copies that have read it."""
    copies = [cache.fork() for cache in caches]
    position = torch.cat([cache.notes.next_position for cache in caches])
    behind = copies[0] if len(copies) == 1 else SideBySide(copies)
    return feed(vlm, ids.expand(len(copies), -1), position, behind)[0], copies


@contextmanager
def eager() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuestionGraphs, "ask", lambda *_: None)
        yield


def check_same(vlm: VisionLanguageModel, caches: list[RotateKCache], ids: Tensor) -> None:
    """Replayed and launched: the logits, the caches, and a next token to each."""
    with eager():
        wanted, plain = asked(vlm, caches, ids)
    found, copies = asked(vlm, caches, ids)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    for mine, other in zip(copies, plain, strict=True):
        assert mine.get_seq_length() == other.get_seq_length()
        assert mine.bytes().total == other.bytes().total
        for layer, own in zip(key_layers(mine), key_layers(other), strict=True):
            assert (layer.logical, layer.text.longest) == (own.logical, own.text.longest)
            assert torch.equal(layer.text.lengths, own.text.lengths)
            for held, one in zip(layer.text.opened()[:2], own.text.opened()[:2], strict=True):
                torch.testing.assert_close(held, one, atol=1e-3, rtol=1e-3)
        token = torch.tensor([[70]])
        behind = mine.notes.next_position + ids.shape[1]
        after = [feed(vlm, token, behind, cache)[0] for cache in (mine, other)]
        torch.testing.assert_close(*after, atol=1e-3, rtol=1e-3)
