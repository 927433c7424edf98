"""Dropped files become pages: pictures as they are, PDFs page by page, each read once."""

import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from PIL import Image

from rotatek.bridge.attention import StopFlag
from rotatek.engine.engine import Engine
from rotatek.errors import (
    CollectionElsewhere,
    CollectionFull,
    CollectionOfOtherSettings,
    CollectionTooLong,
    Stopped,
    public_message,
)
from rotatek.methods.settings import Settings
from rotatek.page.collection.visitors import Bounds, CollectedPage, Collection
from rotatek.page.markup import as_uri
from rotatek.pictures import Pictures
from rotatek.pictures.indexing import pages_in

SMALL: Final = 144  # pixels of a thumbnail's longer side


def prepare(collection: Collection, engine: Engine, model: str, settings: Settings) -> Pictures:
    """The `Pictures` that store a collection's pages, made for its first page.

    Raises:
        CollectionElsewhere: for an engine whose model is in another process.
        CollectionOfOtherSettings: where its pages are stored otherwise.
        UserError: for settings that cannot store a picture.
    """
    if type(engine) is not Engine:
        raise CollectionElsewhere
    if collection.pictures is not None and not collection.pages:
        collection.pictures.close()
        collection.pictures = None
    if collection.pictures is None:
        collection.pictures = Pictures(engine, settings)
        collection.model, collection.settings = model, settings
    elif (collection.model, collection.settings) != (model, settings):
        raise CollectionOfOtherSettings
    return collection.pictures


def read(
    collection: Collection, files: Sequence[str], bounds: Bounds, stop: StopFlag
) -> Iterator[str]:
    """Read files one page after another; what cannot be read is noted, and the others go on.

    Yields:
        the label of each page, once it is read or noted.

    Raises:
        CollectionFull, CollectionTooLong: at a bound; what was read stays.
        Stopped: where `stop` was set.
    """
    began = time.monotonic()
    for path in map(Path, files):
        for number, pages, found in pages_in(path):
            label = path.name if pages == 1 else f"{path.name}, page {number}"
            if stop.is_set() or collection.closed:
                raise Stopped
            if time.monotonic() - began > bounds.seconds:
                raise CollectionTooLong
            if isinstance(found, Exception):
                collection.bad.append((label, public_message(found)))
            else:
                if len(collection.pages) >= bounds.pages or collection.cache_bytes > bounds.bytes:
                    raise CollectionFull
                _add(collection, label, found, stop)
            yield label


def _add(collection: Collection, label: str, image: Image.Image, stop: StopFlag) -> None:
    """Read one page, unless it is here already."""
    assert collection.pictures is not None
    try:
        picture = collection.pictures.add(image, stop)
    except Stopped:
        raise
    except Exception as error:
        collection.bad.append((label, public_message(error)))
        return
    if not collection.has(picture.name):
        png = io.BytesIO()
        image.save(png, "PNG", compress_level=1)
        page = CollectedPage(label, picture, png.getvalue(), as_uri(image, SMALL))
        collection.pages.append(page)
