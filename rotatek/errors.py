"""The closed list of messages for visitors, and the one function that makes them.

Every refusal is a `UserError`: a calm sentence that says what to do, and a stable `code` for
programs. For any other exception the screen shows "Something went wrong (id 4f2a)", and the log has
the traceback under that id. Messages of other exceptions are never shown: they contain addresses,
paths and, at times, the user's own text.
"""

import errno
import hashlib
import logging
import secrets
import traceback
from collections.abc import Iterator
from typing import Any, ClassVar, Final

log = logging.getLogger("rotatek")


class UserError(Exception):
    """A refusal that may be shown as it is. Without an argument its message is the class's.

    The constructor's arguments are in `args`, so that every error survives pickling on its
    way out of a worker process. `status` is that of the HTTP API.
    """

    code: ClassVar[str] = "refused"
    status: ClassVar[int] = 400
    sentence: ClassVar[str] = "This request cannot be answered. Change it and try again."
    param: str | None = None  # the field of a call that it is about, as the API names it

    def __init__(self, message: str | None = None) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.message = message or self.sentence

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.code, self.args), {"param": self.param}


def kinds(base: type[UserError] = UserError) -> Iterator[type[UserError]]:
    """Every kind of refusal below `base`."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def _unpickled(code: str, args: tuple[Any, ...]) -> UserError:
    return next((kind for kind in kinds() if kind.code == code), UserError)(*args)


def _refusal(
    status: int,
    code: str,
    sentence: str,
    param: str | None = None,
    base: type[UserError] = UserError,
) -> type[UserError]:
    """A kind of refusal, named as its code; param: the field of a call that it is about."""
    members = {"status": status, "code": code, "sentence": sentence, "param": param}
    return type(code.title().replace("_", ""), (base,), members)


# The table of refusals: HTTP status, code, sentence.
# fmt: off
ImageMissing = _refusal(400, "image_missing",
    "There is no image yet. Add a picture, such as a PNG or JPEG file, and ask again.")
ImageNotAFile = _refusal(400, "image_not_a_file",
    "The image is not an uploaded file. Send the file itself; addresses are not fetched.")
FileUnreadable = _refusal(400, "file_unreadable",
    "There is no readable file at that path. Check the name and try again.")
FolderUnreadable = _refusal(400, "folder_unreadable",
    "The folder cannot be opened. Check its permissions and try again.")
ImageTooLarge = _refusal(413, "image_too_large",
    "The image file is larger than 10 MB. Save it smaller and try again.")
ImageTooManyPixels = _refusal(400, "image_too_many_pixels",
    "The image has more than 50 million pixels. Scale it down and try again.")
ImageTooSmall = _refusal(400, "image_too_small",
    "The image is less than 16 pixels wide or high. Use a larger one.")
ImageTooNarrow = _refusal(400, "image_too_narrow",
    "The image is more than 100 times as long as it is wide. Crop it and try again.")
ImageTooComplex = _refusal(400, "image_too_complex",
    "The image takes too long to decode. Save it again as a plain PNG and try again.")
NotAnImage = _refusal(400, "not_an_image",
    "The file is not an image. Use a PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF file.")
UnsupportedFormat = _refusal(400, "unsupported_format",
    "This image format is not supported. Save it as PNG or JPEG.")
ImageDamaged = _refusal(400, "image_damaged",
    "The image is damaged or incomplete. Save or download it again and retry.")
TooManyImages = _refusal(400, "too_many_images",
    "There are more than 1,000 images in one request. Use fewer and ask again.")
QuestionEmpty = _refusal(400, "question_empty",
    "The question is empty. Type one and ask again.")
QuestionNotText = _refusal(400, "question_not_text",
    "The question is not text. Type it as plain text and ask again.")
QuestionTooLong = _refusal(400, "question_too_long",
    "The question is longer than 2,000 characters. Shorten it and ask again.")
HistoryInvalid = _refusal(400, "history_invalid",
    "The conversation so far cannot be read, or is too long. Start a new one.")
ControlTokens = _refusal(400, "control_tokens",
    "The question contains the model's own control tokens. Rephrase it and ask again.")
RequestTooLong = _refusal(400, "request_too_long",
    "The image and question do not fit in the model's context. Use a smaller image, a shorter "
    "question or fewer new tokens.")
PicturesDoNotFit = _refusal(400, "pictures_do_not_fit",
    "The pictures do not fit in the model's context. Send fewer or smaller ones, or ask for "
    "less detail.", "messages", RequestTooLong)
QuestionDoesNotFit = _refusal(400, "question_does_not_fit",
    "The question does not fit in the model's context. Shorten it and ask again.",
    "messages", RequestTooLong)
SystemDoesNotFit = _refusal(400, "system_does_not_fit",
    "The system message does not fit in the model's context. Shorten it and ask again.",
    "messages", RequestTooLong)
HistoryDoesNotFit = _refusal(400, "history_does_not_fit",
    "The conversation so far does not fit in the model's context. Leave earlier turns out and "
    "ask again.",
    "messages", RequestTooLong)
AnswerDoesNotFit = _refusal(400, "answer_does_not_fit",
    "The image and question leave no room in the model's context for so long an answer. Ask "
    "for fewer new tokens.", "max_tokens", RequestTooLong)
PlacesUnequal = _refusal(400, "places_unequal",
    "The text has another number of picture marks than there are pictures. Give one for each.")
PartUnsupported = _refusal(400, "part_unsupported",
    "Parts of this type are not read. Send texts as text, pictures as image_url and PDF files as "
    "file, and leave sound and films out.", "messages")
FileNotGiven = _refusal(400, "file_not_given",
    "The part holds no file, and addresses are not fetched. Give file_data as "
    "data:application/pdf;base64,...")
PictureNeeded = _refusal(400, "picture_needed",
    "This model's chat template has no place for a chat without a picture. Add one, or use "
    "another model.", "messages")
OutOfMemory = _refusal(503, "out_of_memory",
    "The device ran out of memory. Try a smaller image, fewer new tokens or a lower budget.")
ModelTooLarge = _refusal(400, "model_too_large",
    "The model does not fit in this device's free memory. Choose a smaller model or another "
    "device.")
StorageFull = _refusal(503, "storage_full",
    "The disk is full. Free some space and try again.")
HubUnreachable = _refusal(400, "hub_unreachable",
    "The hub cannot be reached. Check the connection and try again, or give a folder that holds "
    "the model.")
ModelGated = _refusal(400, "model_gated",
    "The model is gated. Accept its terms on its page of the hub, and set HF_TOKEN to a token of "
    "your account.")
WeightsMissing = _refusal(400, "weights_missing",
    "The model's weights were not found. Check the model's name or folder.")
WeightsDamaged = _refusal(400, "weights_damaged",
    "The model's weights are damaged or incomplete. Fetch them again.")
CalibrationUnusable = _refusal(400, "calibration_unusable",
    "The calibration file cannot be used with this model. Make one with `python -m rotatek "
    "calibrate`.")
CacheFileForeign = _refusal(400, "cache_file_foreign",
    "This file is not a stored cache. Give one that `save` or --save-cache has written.")
CacheFileDamaged = _refusal(400, "cache_file_damaged",
    "The stored cache is damaged or incomplete. Ask again with the image, and save anew.")
CacheFileVersion = _refusal(400, "cache_file_version",
    "The cache was stored by another version of RotateK. Ask again with the image, and save anew.")
CacheOfAnotherModel = _refusal(400, "cache_of_another_model",
    "The stored cache belongs to another model, or to other numbers of it. Load the model that "
    "filled it.")
CacheNotStorable = _refusal(400, "cache_not_storable",
    "There is no compressed cache to save. Fill one first, under settings that compress.")
CacheFileUnwritable = _refusal(400, "cache_file_unwritable",
    "The cache cannot be written there. Check the folder and the name, and try again.")
CompressorMissing = _refusal(400, "compressor_missing",
    "Stored caches need the package zstandard. Install it with `pip install 'rotatek[store]'`.")
ModelUnsupported = _refusal(400, "model_unsupported",
    "This model is not supported. `python -m rotatek info` lists the families that are.")
DeviceMissing = _refusal(400, "device_missing",
    "There is no such GPU that PyTorch can use here. Leave the device out, or say cpu.")
ModeUnsupported = _refusal(400, "mode_unsupported",
    "This way of decoding is not supported with a compressed cache. Use greedy decoding.")
SchemasNotInstalled = _refusal(400, "schemas_not_installed",
    "Answers cannot follow a JSON schema here. Install rotatek[serve], or leave response_format "
    "out.", "response_format")
SchemaUnusable = _refusal(400, "schema_unusable",
    "The JSON schema cannot be enforced. Change it and ask again.", "response_format")
SchemaBroken = _refusal(400, "schema_broken",
    "The JSON schema is too large or too ambiguous to follow. Make it simpler and ask again.",
    "response_format")
QueueFull = _refusal(429, "queue_full",
    "Many people are asking at the moment. Wait a little and ask again.")
GpuNotLent = _refusal(503, "gpu_not_lent",
    "No GPU is free for you now, or your share for today is used up. Choose the embedded model, "
    "or ask again later.")
KeyUnknown = _refusal(401, "invalid_api_key",
    "The API key is missing or not one that this server knows. Send it as Bearer token.")
ModelNotServed = _refusal(404, "model_not_found",
    "That model is not served here. GET /v1/models lists those that are.", "model")
AddressUnknown = _refusal(404, "address_unknown",
    "There is nothing here. Ask by POST /v1/chat/completions, with pictures and PDF files as data "
    "URIs; GET /v1/models lists the models.")
BodyTooLarge = _refusal(413, "body_too_large",
    "The request is larger than 40 MB. Send fewer or smaller pictures.")
BodyTooSlow = _refusal(408, "body_too_slow",
    "The request did not arrive within a minute. Send it again, or smaller pictures.")
BodyUnreadable = _refusal(400, "body_unreadable",
    "The request is no JSON object. Send one, with Content-Type: application/json.")
MessagesUnreadable = _refusal(400, "messages_unreadable",
    "The messages are not a chat: each has a role and content, text or parts, and the last one is "
    "not the assistant's.", "messages")
ImageOutOfPlace = _refusal(400, "image_out_of_place",
    "The assistant's messages show no pictures. Move them to the user's and try again.")
ImageNotData = _refusal(400, "image_not_data",
    "Addresses are not fetched. Send the picture itself, as data:image/png;base64,... in "
    "image_url.url.")
AnswerBroken = _refusal(500, "answer_broken",
    "The answer broke off and cannot be completed as it began. Ask again.")
Stopped = _refusal(400, "stopped",
    "Stopped. Ask again whenever you like.")
ConversationOver = _refusal(400, "conversation_over",
    "This conversation has reached its limit. Press Ask to start afresh: the image is then read "
    "again.")
ConversationGone = _refusal(400, "conversation_gone",
    "The cache of this answer has been released to free memory. Press Ask, and the image is read "
    "again.")
Restarting = _refusal(503, "restarting",
    "The service is restarting. Ask again in a minute.")
PdfNotInstalled = _refusal(400, "pdf_not_installed",
    "PDF files cannot be read here. Install rotatek[pdf], or save the pages as PNG.")
PdfTooLarge = _refusal(400, "pdf_too_large",
    "The PDF file is larger than 100 MB. Split it and try again.")
PdfEncrypted = _refusal(400, "pdf_encrypted",
    "The PDF is protected by a password. Save it without one and try again.")
PdfDamaged = _refusal(400, "pdf_damaged",
    "The PDF is damaged, or has no pages. Save or download it again and retry.")
PdfTooManyPages = _refusal(400, "pdf_too_many_pages",
    "The PDF has more than 2,000 pages. Split it and try again.")
PdfPageTooLong = _refusal(400, "pdf_page_too_long",
    "A page of the PDF takes too long to draw. Save that page as PNG and try again.")
PdfsManyPages = _refusal(400, "pdfs_many_pages",
    "The PDF files of the call have more than 32 pages together. Leave some out and ask again.")
PdfManyPages = _refusal(400, "pdf_many_pages",
    "The PDF has more than 8 pages, too many for one question. Store its pages with `rotatek "
    "index`, and ask all of them with `rotatek ask --store`.")
TextBeforePicture = _refusal(400, "text_before_picture",
    "This model's chat template writes the question before the picture, so no picture can be "
    "read without one. Ask afresh each time, or use another model.")
CollectionFull = _refusal(400, "collection_full",
    "The collection is full, so the rest was left out. Empty it, or read a folder of any size with "
    "`rotatek index`.")
CollectionTooLong = _refusal(400, "collection_too_long",
    "This took longer than a visitor may have, so the rest was left out. Go on with fewer pages, "
    "or use `rotatek index`.")
CollectionOfOtherSettings = _refusal(400, "collection_of_other_settings",
    "The pages here are stored with another model or other settings. Empty the collection, or set "
    "them back.")
CollectionElsewhere = _refusal(400, "collection_elsewhere",
    "This model runs in another process, where no collections are kept. Choose another model, or "
    "use `rotatek index`.")
DamageElsewhere = _refusal(400, "damage_elsewhere",
    "This model runs in another process, which measures no heads. Choose another model.")
CollectionEmpty = _refusal(400, "collection_empty",
    "There are no pages yet. Drop pictures or PDF files first, and ask again.")
CollectionBusy = _refusal(400, "collection_busy",
    "These pages are still being read or asked. Wait until that is done, or press Stop.")
PictureGone = _refusal(400, "picture_gone",
    "This picture is no longer in memory. Add it again.")
PictureDamaged = _refusal(400, "picture_damaged",
    "The stored page is damaged. Run `rotatek store DIR --check`, and index its file again.")
StoreForeign = _refusal(400, "store_foreign",
    "There is no store of pictures in that folder. Make one with `rotatek index FILE... "
    "--store DIR`.")
StoreFolderTaken = _refusal(400, "store_folder_taken",
    "That folder holds other files and no store. Name a new or an empty folder.")
StoreVersion = _refusal(400, "store_version",
    "The store was made by another version of RotateK. Index its files again into a new "
    "folder.")
StoreOfAnotherModel = _refusal(400, "store_of_another_model",
    "The store belongs to another model, or to other weights of it. Load that model, or index "
    "into a new folder.")
StoreOfOtherSettings = _refusal(400, "store_of_other_settings",
    "The store was made with other settings. Leave the settings out, or index into a new "
    "folder.")
StoreDamaged = _refusal(400, "store_damaged",
    "The store's own description, store.json, is damaged. Index its files again into a new "
    "folder.")
StoreUnwritable = _refusal(400, "store_unwritable",
    "The store cannot be written. Check the folder and its permissions, and try again.")
PageNameUnknown = _refusal(400, "page_name_unknown",
    "No page of the store has that name, or several have. `rotatek store DIR` lists them.")
# fmt: on


# The message of `rotatek.engine.events.Restarted`: not an error, the answer follows.
TIGHTER: Final = "The device ran out of memory. The image was halved and the answer may be shorter."
ELSEWHERE: Final = "The machine that answered is gone. Another one answers afresh."


class SettingError(UserError):
    """A setting outside its range: names the field, the allowed values and what was given.

    name: the field, as code and command line spell it; allowed: e.g. "a number in (0, 1]";
    given: the rejected value, shown shortened and without unprintable characters.
    """

    code = "setting_out_of_range"
    sentence = "A setting is out of range."

    def __init__(self, name: str, allowed: str, given: object) -> None:
        super().__init__(f"{name} must be {allowed}; got {_short(given)}.")
        self.args = (name, allowed, _short(given))
        self.name, self.allowed, self.given = name, allowed, _short(given)
        self.param = name


class SettingUnknown(SettingError):
    """An unknown setting or field. known: the valid ones; noun: its kind."""

    code = "setting_unknown"

    def __init__(self, name: object, known: str, noun: str = "setting") -> None:
        super().__init__(_short(name), f"one of {known}", name)
        self.message = f'There is no {noun} "{self.name}". Use one of {known}.'
        self.args = (self.name, known, noun)


class SettingRemoved(SettingError):
    """A setting that there was once. instead: what to do."""

    code = "setting_removed"

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
    if isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull()
    ident = secrets.token_hex(2)
    log.error("id %s\n%s", ident, "\n".join(_describe(link) for link in _chain(exc)))
    log.debug("id %s message: %s", ident, exc)
    return UserError(f"Something went wrong (id {ident})")


def public_message(exc: BaseException) -> str:
    """The message for `exc` that a visitor may read: the sentence of its `public_error`."""
    return public_error(exc).message


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception and what caused it, outermost first, at most eight."""
    link: BaseException | None = exc
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


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
