"""The closed list of messages for visitors, and the one function that makes them.

Every refusal is a `UserError`: a calm sentence that says what to do, and a stable `code` for
programs. For any other exception the screen shows "Something went wrong (id 4f2a)", and the log has
the traceback under that id. Messages of other exceptions are never shown: they contain addresses,
paths and, at times, the user's own text.
"""

import errno
import hashlib
import logging
import re
import secrets
import traceback
from typing import ClassVar, Final

log = logging.getLogger("rotatek")
FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class UserError(Exception):
    """A refusal that may be shown as it is. Without an argument its message is its class's
    docstring. The constructor's arguments are in `args`, so that it survives pickling.

    code: for programs; the class's name, unless it is given; status: that of the HTTP API; param:
    the field of a call that it is about, as the API names it.
    """

    code: ClassVar[str] = "refused"
    status: ClassVar[int] = 400
    sentence: ClassVar[str] = "This request cannot be answered. Change it and try again."
    param: str | None = None

    def __init_subclass__(cls, code: str = "", status: int = 400, param: str | None = None) -> None:
        cls.code = code or re.sub("(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        cls.status, cls.param = status, param
        cls.sentence = " ".join((cls.__doc__ or UserError.sentence).split())

    def __init__(self, message: str | None = None) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.message = message or self.sentence

    def __str__(self) -> str:
        return self.message


# The table of refusals, each with what it says.
# fmt: off
class ImageMissing(UserError):
    """There is no image yet. Add a picture, such as a PNG or JPEG file, and ask again."""
class ImageNotAFile(UserError):
    """The image is not an uploaded file. Send the file itself; addresses are not fetched."""
class FileUnreadable(UserError):
    """There is no readable file at that path. Check the name and try again."""
class FolderUnreadable(UserError):
    """The folder cannot be opened. Check its permissions and try again."""
class ImageTooLarge(UserError, status=413):
    """The image file is larger than 10 MB. Save it smaller and try again."""
class ImageTooManyPixels(UserError):
    """The image has more than 50 million pixels. Scale it down and try again."""
class ImageTooSmall(UserError):
    """The image is less than 16 pixels wide or high. Use a larger one."""
class ImageTooNarrow(UserError):
    """The image is more than 100 times as long as it is wide. Crop it and try again."""
class ImageTooComplex(UserError):
    """The image takes too long to decode. Save it again as a plain PNG and try again."""
class NotAnImage(UserError):
    """The file is not an image. Use a PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF file."""
class UnsupportedFormat(UserError):
    """This image format is not supported. Save it as PNG or JPEG."""
class ImageDamaged(UserError):
    """The image is damaged or incomplete. Save or download it again and retry."""
class TooManyImages(UserError):
    """There are more than 1,000 images in one request. Use fewer and ask again."""
class QuestionEmpty(UserError):
    """The question is empty. Type one and ask again."""
class QuestionNotText(UserError):
    """The question is not text. Type it as plain text and ask again."""
class QuestionTooLong(UserError):
    """The question is longer than 2,000 characters. Shorten it and ask again."""
class ControlTokens(UserError):
    """The question contains the model's own control tokens. Rephrase it and ask again."""
class RequestTooLong(UserError):
    """The image and question do not fit in the model's context. Use a smaller image, a shorter
    question or fewer new tokens."""
class PicturesDoNotFit(RequestTooLong, param="messages"):
    """The pictures do not fit in the model's context. Send fewer or smaller ones, or ask for less
    detail."""
class QuestionDoesNotFit(RequestTooLong, param="messages"):
    """The question does not fit in the model's context. Shorten it and ask again."""
class SystemDoesNotFit(RequestTooLong, param="messages"):
    """The system message does not fit in the model's context. Shorten it and ask again."""
class HistoryDoesNotFit(RequestTooLong, param="messages"):
    """The conversation so far does not fit in the model's context. Leave earlier turns out and ask
    again."""
class AnswerDoesNotFit(RequestTooLong, param="max_tokens"):
    """The image and question leave no room in the model's context for so long an answer. Ask for
    fewer new tokens."""
class PlacesUnequal(UserError):
    """The text has another number of picture marks than there are pictures. Give one for each."""
class PartUnsupported(UserError, param="messages"):
    """Parts of this type are not read. Send texts as text, pictures as image_url and PDF files as
    file, and leave sound and films out."""
class FileNotGiven(UserError):
    """The part holds no file, and addresses are not fetched. Give file_data as
    data:application/pdf;base64,..."""
class PictureNeeded(UserError, param="messages"):
    """This model's chat template has no place for a chat without a picture. Add one, or use another
    model."""
class OutOfMemory(UserError, status=503):
    """The device ran out of memory. Try a smaller image, fewer new tokens or a lower budget."""
class ModelTooLarge(UserError):
    """The model does not fit in this device's free memory. Choose a smaller model or another
    device."""
class StorageFull(UserError, status=503):
    """The disk is full. Free some space and try again."""
class HubUnreachable(UserError):
    """The hub cannot be reached. Check the connection and try again, or give a folder that holds
    the model."""
class ModelGated(UserError):
    """The model is gated. Accept its terms on its page of the hub, and set HF_TOKEN to a token of
    your account."""
class WeightsMissing(UserError):
    """The model's weights were not found. Check the model's name or folder."""
class WeightsDamaged(UserError):
    """The model's weights are damaged or incomplete. Fetch them again."""
class CalibrationUnusable(UserError):
    """The calibration file cannot be used with this model. Make one with `python -m rotatek
    calibrate`."""
class CacheFileForeign(UserError):
    """This file is not a stored cache. Give one that `save` or --save-cache has written."""
class CacheFileDamaged(UserError):
    """The stored cache is damaged or incomplete. Ask again with the image, and save anew."""
class CacheFileVersion(UserError):
    """The cache was stored by another version of RotateK. Ask again with the image, and save
    anew."""
class CacheOfAnotherModel(UserError):
    """The stored cache belongs to another model, or to other numbers of it. Load the model that
    filled it."""
class CacheNotStorable(UserError):
    """There is no compressed cache to save. Fill one first, under settings that compress."""
class CacheFileUnwritable(UserError):
    """The cache cannot be written there. Check the folder and the name, and try again."""
class CompressorMissing(UserError):
    """Stored caches need the package zstandard. Install it with `pip install 'rotatek[store]'`."""
class ModelUnsupported(UserError):
    """This model is not supported. `python -m rotatek info` lists the families that are."""
class DeviceMissing(UserError):
    """There is no such GPU that PyTorch can use here. Leave the device out, or say cpu."""
class ModeUnsupported(UserError):
    """This way of decoding is not supported with a compressed cache. Use greedy decoding."""
class SchemasNotInstalled(UserError, param="response_format"):
    """Answers cannot follow a JSON schema here. Install rotatek[serve], or leave response_format
    out."""
class SchemaUnusable(UserError, param="response_format"):
    """The JSON schema cannot be enforced. Change it and ask again."""
class SchemaBroken(UserError, param="response_format"):
    """The JSON schema is too large or too ambiguous to follow. Make it simpler and ask again."""
class QueueFull(UserError, status=429):
    """Many people are asking at the moment. Wait a little and ask again."""
class GpuNotLent(UserError, status=503):
    """No GPU is free for you now, or your share for today is used up. Choose the embedded model, or
    ask again later."""
class KeyUnknown(UserError, code="invalid_api_key", status=401):
    """The API key is missing or not one that this server knows. Send it as Bearer token."""
class ModelNotServed(UserError, code="model_not_found", status=404, param="model"):
    """That model is not served here. GET /v1/models lists those that are."""
class AddressUnknown(UserError, status=404):
    """There is nothing here. Ask by POST /v1/chat/completions, with pictures and PDF files as data
    URIs; GET /v1/models lists the models."""
class BodyTooLarge(UserError, status=413):
    """The request is larger than 40 MB. Send fewer or smaller pictures."""
class BodyTooSlow(UserError, status=408):
    """The request did not arrive within a minute. Send it again, or smaller pictures."""
class BodyUnreadable(UserError):
    """The request is no JSON object. Send one, with Content-Type: application/json."""
class MessagesUnreadable(UserError, param="messages"):
    """The messages are not a chat: each has a role and content, text or parts, and the last one is
    not the assistant's."""
class ImageOutOfPlace(UserError):
    """The assistant's messages show no pictures. Move them to the user's and try again."""
class ImageNotData(UserError):
    """Addresses are not fetched. Send the picture itself, as data:image/png;base64,... in
    image_url.url."""
class AnswerBroken(UserError, status=500):
    """The answer broke off and cannot be completed as it began. Ask again."""
class Stopped(UserError):
    """Stopped. Ask again whenever you like."""
class ConversationOver(UserError):
    """This conversation has reached its limit. Press Ask to start afresh: the image is then read
    again."""
class ConversationGone(UserError):
    """The cache of this answer has been released to free memory. Press Ask, and the image is read
    again."""
class Restarting(UserError, status=503):
    """The service is restarting. Ask again in a minute."""
class PdfNotInstalled(UserError):
    """PDF files cannot be read here. Install rotatek[pdf], or save the pages as PNG."""
class PdfTooLarge(UserError):
    """The PDF file is larger than 100 MB. Split it and try again."""
class PdfEncrypted(UserError):
    """The PDF is protected by a password. Save it without one and try again."""
class PdfDamaged(UserError):
    """The PDF is damaged, or has no pages. Save or download it again and retry."""
class PdfTooManyPages(UserError):
    """The PDF has more than 2,000 pages. Split it and try again."""
class PdfPageTooLong(UserError):
    """A page of the PDF takes too long to draw. Save that page as PNG and try again."""
class PdfsManyPages(UserError):
    """The PDF files of the call have more than 32 pages together. Leave some out and ask again."""
class PdfManyPages(UserError):
    """The PDF has more than 8 pages, too many for one question. Store its pages with `rotatek
    index`, and ask all of them with `rotatek ask --store`."""
class TextBeforePicture(UserError):
    """This model's chat template writes the question before the picture, so no picture can be read
    without one. Ask afresh each time, or use another model."""
class CollectionFull(UserError):
    """The collection is full, so the rest was left out. Empty it, or read a folder of any size with
    `rotatek index`."""
class CollectionTooLong(UserError):
    """This took longer than a visitor may have, so the rest was left out. Go on with fewer pages,
    or use `rotatek index`."""
class CollectionOfOtherSettings(UserError):
    """The pages here are stored with another model or other settings. Empty the collection, or set
    them back."""
class CollectionElsewhere(UserError):
    """This model runs in another process, where no collections are kept. Choose another model, or
    use `rotatek index`."""
class DamageElsewhere(UserError):
    """This model runs in another process, which measures no heads. Choose another model."""
class CollectionEmpty(UserError):
    """There are no pages yet. Drop pictures or PDF files first, and ask again."""
class CollectionBusy(UserError):
    """These pages are still being read or asked. Wait until that is done, or press Stop."""
class PictureGone(UserError):
    """This picture is no longer in memory. Add it again."""
class PictureDamaged(UserError):
    """The stored page is damaged. Run `rotatek store DIR --check`, and index its file again."""
class StoreForeign(UserError):
    """There is no store of pictures in that folder. Make one with `rotatek index FILE... --store
    DIR`."""
class StoreFolderTaken(UserError):
    """That folder holds other files and no store. Name a new or an empty folder."""
class StoreVersion(UserError):
    """The store was made by another version of RotateK. Index its files again into a new folder."""
class StoreOfAnotherModel(UserError):
    """The store belongs to another model, or to other weights of it. Load that model, or index into
    a new folder."""
class StoreOfOtherSettings(UserError):
    """The store was made with other settings. Leave the settings out, or index into a new
    folder."""
class StoreDamaged(UserError):
    """The store's own description, store.json, is damaged. Index its files again into a new
    folder."""
class StoreUnwritable(UserError):
    """The store cannot be written. Check the folder and its permissions, and try again."""
class PageNameUnknown(UserError):
    """No page of the store has that name, or several have. `rotatek store DIR` lists them."""
# fmt: on


# The message of `rotatek.engine.events.Restarted`: not an error, the answer follows.
TIGHTER: Final = "The device ran out of memory. The image was halved and the answer may be shorter."
ELSEWHERE: Final = "The machine that answered is gone. Another one answers afresh."


class SettingError(UserError, code="setting_out_of_range"):
    """A setting outside its range: names the field, the allowed values and what was given.

    name: the field, as code and command line spell it; allowed: e.g. "a number in (0, 1]";
    given: the rejected value, shown shortened and without unprintable characters.
    """

    def __init__(self, name: str, allowed: str, given: object) -> None:
        self.name, self.allowed, self.given = self.args = name, allowed, _short(given)
        self.message = f"{name} must be {allowed}; got {self.given}."
        self.param = name


class SettingUnknown(SettingError):
    """An unknown setting. known: the valid ones."""

    def __init__(self, name: object, known: str) -> None:
        super().__init__(_short(name), f"one of {known}", name)
        self.message = f'There is no setting "{self.name}". Use one of {known}.'
        self.args = (self.name, known)


class SettingRemoved(SettingError):
    """A setting that there was once. instead: what to do."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(name, instead, name)
        self.message = f"The setting {name} is gone: {instead}."
        self.args = (name, instead)


def _short(value: object, limit: int = 40) -> str:
    """A value as one printable line of at most `limit` characters."""
    try:
        text = str(value[:limit] if isinstance(value, str | bytes) else value)
    except Exception:
        text = type(value).__name__
    text = "".join(c if c.isprintable() else " " for c in text[: 4 * limit]).strip()
    return text if len(text) < limit else text[: limit - 1] + "…"


def public_error(exc: BaseException) -> UserError:
    """The public error for `exc`, without its traceback, which refers to tensors.

    Anything but a `UserError` and exhausted memory or disk becomes a plain `UserError` with an id.
    The log gets, under that id, each exception's type, frames and its message's size and hash; the
    message itself only at DEBUG level, which an operator has to turn on.
    """
    if isinstance(exc, UserError):
        known = type(exc)(*exc.args)
        known.param = exc.param
        return known
    if isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError":
        return OutOfMemory()
    if isinstance(exc, OSError) and exc.errno in FULL:
        return StorageFull()
    ident = secrets.token_hex(2)
    chain: list[BaseException] = []  # it and what caused it, outermost first
    link: BaseException | None = exc
    while link is not None and len(chain) < 8:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    log.error("id %s\n%s", ident, "\n".join(map(_describe, chain)))
    log.debug("id %s message: %s", ident, exc)
    return UserError(f"Something went wrong (id {ident})")


def public_message(exc: BaseException) -> str:
    """The message for `exc` that a visitor may read: the sentence of its `public_error`."""
    return public_error(exc).message


def _describe(exc: BaseException) -> str:
    """Type, frames, and the message's size and hash."""
    try:
        message = str(exc)
    except Exception:
        message = ""
    digest = hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    frames = "".join(traceback.format_tb(exc.__traceback__))
    kind = f"{type(exc).__module__}.{type(exc).__qualname__}"
    return f"{frames}{kind} (message: {len(message)} characters, sha256 {digest})"
