"""The closed list of what a visitor may be told, and the one function that tells it.

Every refusal is a `UserError`: a calm sentence that says what to do, and a stable `code` for
programs. Anything else reaches the screen as "Something went wrong (id 4f2a)" and the log, under
that id, with its traceback. Messages of other exceptions are never shown: they carry addresses,
paths and, at times, the user's own text.
"""

import errno
import hashlib
import logging
import secrets
import traceback
from collections.abc import Iterator
from typing import ClassVar, Final

log = logging.getLogger("rotatek")


class UserError(Exception):
    """A refusal that may be shown as it is. Without an argument it says the class's sentence.

    The constructor's arguments are kept in `args`, so that every error survives pickling on its
    way out of a worker process.
    """

    code: ClassVar[str] = "refused"
    sentence: ClassVar[str] = "This request cannot be answered. Change it and try again."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.message = message or self.sentence

    def __str__(self) -> str:
        return self.message


class ImageMissing(UserError):
    code = "image_missing"
    sentence = "There is no image yet. Add a PNG, JPEG or WebP file and ask again."


class FieldsMissing(UserError):
    code = "fields_missing"
    sentence = "The call does not have one value for each field. Send them all, in order."


class ImageNotAFile(UserError):
    code = "image_not_a_file"
    sentence = (
        "The image is not an uploaded file. Send the file itself, as gradio_client's handle_file "
        "does; addresses are not fetched."
    )


class FileUnreadable(UserError):
    code = "file_unreadable"
    sentence = "There is no readable file at that path. Check the name and try again."


class ImageTooLarge(UserError):
    code = "image_too_large"
    sentence = "The image file is larger than 10 MB. Save it smaller and try again."


class ImageTooManyPixels(UserError):
    code = "image_too_many_pixels"
    sentence = "The image has more than 50 million pixels. Scale it down and try again."


class ImageTooSmall(UserError):
    code = "image_too_small"
    sentence = "The image is less than 16 pixels wide or high. Use a larger one."


class ImageTooNarrow(UserError):
    code = "image_too_narrow"
    sentence = "The image is more than 100 times as long as it is wide. Crop it and try again."


class ImageTooComplex(UserError):
    code = "image_too_complex"
    sentence = "The image takes too long to decode. Save it again as a plain PNG and try again."


class NotAnImage(UserError):
    code = "not_an_image"
    sentence = "The file is not an image. Use a PNG, JPEG or WebP file."


class UnsupportedFormat(UserError):
    code = "unsupported_format"
    sentence = "This image format is not supported. Save it as PNG, JPEG or WebP."


class ImageDamaged(UserError):
    code = "image_damaged"
    sentence = "The image is damaged or incomplete. Save or download it again and retry."


class TooManyImages(UserError):
    code = "too_many_images"
    sentence = "There are more than 8 images in one request. Use fewer and ask again."


class ClipUnreadable(UserError):
    code = "clip_unreadable"
    sentence = "The video is damaged, or of a kind that cannot be read. Save it as MP4 or WebM."


class ClipTooLarge(UserError):
    code = "clip_too_large"
    sentence = "The video file is larger than 100 MB. Save it smaller and try again."


class ClipTooLong(UserError):
    code = "clip_too_long"
    sentence = "The video does not end within ten minutes. Cut out what matters and try again."


class ClipsNotInstalled(UserError):
    code = "clips_not_installed"
    sentence = "Videos cannot be read here. Install rotatek[video], or ask about a picture."


class PdfNotInstalled(UserError):
    code = "pdf_not_installed"
    sentence = "PDF files cannot be read here. Install rotatek[pdf], or save the pages as PNG."


class PdfTooLarge(UserError):
    code = "pdf_too_large"
    sentence = "The PDF file is larger than 100 MB. Split it and try again."


class PdfEncrypted(UserError):
    code = "pdf_encrypted"
    sentence = "The PDF is protected by a password. Save it without one and try again."


class PdfDamaged(UserError):
    code = "pdf_damaged"
    sentence = "The PDF is damaged, or has no pages. Save or download it again and retry."


class PdfTooManyPages(UserError):
    code = "pdf_too_many_pages"
    sentence = "The PDF has more than 2,000 pages. Split it and try again."


class PdfPageTooLong(UserError):
    code = "pdf_page_too_long"
    sentence = "A page of the PDF takes too long to draw. Save that page as PNG and try again."


class PdfManyPages(UserError):
    code = "pdf_many_pages"
    sentence = (
        "The PDF has more than 8 pages, too many for one question. Store its pages with "
        "`rotatek index`, and ask all of them with `rotatek ask --store`."
    )


class QuestionEmpty(UserError):
    code = "question_empty"
    sentence = "The question is empty. Type one and ask again."


class QuestionNotText(UserError):
    code = "question_not_text"
    sentence = "The question is not text. Type it as plain text and ask again."


class QuestionTooLong(UserError):
    code = "question_too_long"
    sentence = "The question is longer than 2,000 characters. Shorten it and ask again."


class HistoryInvalid(UserError):
    code = "history_invalid"
    sentence = "The conversation so far cannot be read, or is too long. Start a new one."


class ControlTokens(UserError):
    code = "control_tokens"
    sentence = "The question contains the model's own control tokens. Rephrase it and ask again."


class TextBeforePicture(UserError):
    code = "text_before_picture"
    sentence = (
        "This model's chat template writes the question before the picture, so no picture can be "
        "read without one. Ask afresh each time, or use another model."
    )


class RequestTooLong(UserError):
    code = "request_too_long"
    sentence = (
        "The image and question do not fit in the model's context. Use a smaller image, a shorter "
        "question or fewer new tokens."
    )


class OutOfMemory(UserError):
    code = "out_of_memory"
    sentence = (
        "The device ran out of memory. Try a smaller image, fewer new tokens or a lower budget."
    )


class ModelNotNamed(UserError):
    code = "model_not_named"
    sentence = "No checkpoint is named. Type a hub id or a folder of this machine."


class ModelLoading(UserError):
    code = "model_loading"
    sentence = "Another checkpoint is being loaded. Wait until it is ready, and try again."


class ModelTooLarge(UserError):
    code = "model_too_large"
    sentence = (
        "The model does not fit in this device's free memory. Choose a smaller model or another "
        "device."
    )


class StorageFull(UserError):
    code = "storage_full"
    sentence = "The disk is full. Free some space and try again."


class HubUnreachable(UserError):
    code = "hub_unreachable"
    sentence = (
        "The hub cannot be reached. Check the connection and try again, or give a folder that "
        "holds the model."
    )


class ModelGated(UserError):
    code = "model_gated"
    sentence = (
        "The model is gated. Accept its terms on its page of the hub, and set HF_TOKEN to a token "
        "of your account."
    )


class WeightsMissing(UserError):
    code = "weights_missing"
    sentence = "The model's weights were not found. Check the model's name or folder."


class WeightsDamaged(UserError):
    code = "weights_damaged"
    sentence = "The model's weights are damaged or incomplete. Fetch them again."


class CalibrationUnusable(UserError):
    code = "calibration_unusable"
    sentence = (
        "The calibration file cannot be used with this model. Make one with "
        "`python -m rotatek calibrate`."
    )


class CacheFileForeign(UserError):
    code = "cache_file_foreign"
    sentence = "This file is not a stored cache. Give one that `save` or --save-cache has written."


class CacheFileDamaged(UserError):
    code = "cache_file_damaged"
    sentence = "The stored cache is damaged or incomplete. Ask again with the image, and save anew."


class CacheFileVersion(UserError):
    code = "cache_file_version"
    sentence = (
        "The cache was stored by another version of RotateK. Ask again with the image, and save "
        "anew."
    )


class CacheOfAnotherModel(UserError):
    code = "cache_of_another_model"
    sentence = (
        "The stored cache belongs to another model, or to other numbers of it. Load the model that "
        "filled it."
    )


class CacheNotStorable(UserError):
    code = "cache_not_storable"
    sentence = "There is no compressed cache to save. Fill one first, under settings that compress."


class CacheFileUnwritable(UserError):
    code = "cache_file_unwritable"
    sentence = "The cache cannot be written there. Check the folder and the name, and try again."


class CompressorMissing(UserError):
    code = "compressor_missing"
    sentence = (
        "Stored caches need the package zstandard. Install it with `pip install 'rotatek[store]'`."
    )


class PictureGone(UserError):
    code = "picture_gone"
    sentence = (
        "This picture is not held any more: it made room for others, or was forgotten. Add it "
        "again."
    )


class PictureDamaged(UserError):
    code = "picture_damaged"
    sentence = (
        "The stored page is damaged. Run `rotatek store DIR --check`, and index its file again."
    )


class QuestionNeeded(UserError):
    code = "question_needed"
    sentence = (
        "This token pruner chooses by the question, so a picture cannot be read without one. "
        "Choose another pruner, or none."
    )


class StoreForeign(UserError):
    code = "store_foreign"
    sentence = (
        "There is no store of pictures in that folder. Make one with "
        "`rotatek index FILE... --store DIR`."
    )


class StoreFolderTaken(UserError):
    code = "store_folder_taken"
    sentence = "That folder holds other files and no store. Name a new or an empty folder."


class StoreVersion(UserError):
    code = "store_version"
    sentence = (
        "The store was made by another version of RotateK. Index its files again into a new folder."
    )


class StoreOfAnotherModel(UserError):
    code = "store_of_another_model"
    sentence = (
        "The store belongs to another model, or to other weights of it. Load that model, or index "
        "into a new folder."
    )


class StoreOfOtherSettings(UserError):
    code = "store_of_other_settings"
    sentence = (
        "The store was made with other settings. Leave the settings out, or index into a new "
        "folder."
    )


class StoreDamaged(UserError):
    code = "store_damaged"
    sentence = (
        "The store's own description, store.json, is damaged. Index its files again into a new "
        "folder."
    )


class StoreUnwritable(UserError):
    code = "store_unwritable"
    sentence = "The store cannot be written. Check the folder and its permissions, and try again."


class PageNameUnknown(UserError):
    code = "page_name_unknown"
    sentence = (
        "No page of the store has that name, or several have. `rotatek store DIR` lists them."
    )


class ModelUnsupported(UserError):
    code = "model_unsupported"
    sentence = "This model is not supported. `python -m rotatek info` lists the families that are."


class DeviceMissing(UserError):
    code = "device_missing"
    sentence = "There is no such GPU that PyTorch can use here. Leave the device out, or say cpu."


class ModeUnsupported(UserError):
    code = "mode_unsupported"
    sentence = "This way of decoding is not supported with a compressed cache. Use greedy decoding."


class QueueFull(UserError):
    code = "queue_full"
    sentence = "Many people are asking at the moment. Wait a little and ask again."


class GpuNotLent(UserError):
    code = "gpu_not_lent"
    sentence = (
        "No GPU is free for you now, or your share for today is used up. Choose the embedded "
        "model, or ask again later."
    )


class KeyUnknown(UserError):
    code = "invalid_api_key"
    sentence = "The API key is missing or not one that this server knows. Send it as Bearer token."


class ModelNotServed(UserError):
    code = "model_not_found"
    sentence = "That model is not served here. GET /v1/models lists those that are."


class AddressUnknown(UserError):
    code = "address_unknown"
    sentence = "There is nothing here. The API has GET /v1/models and POST /v1/chat/completions."


class BodyTooLarge(UserError):
    code = "body_too_large"
    sentence = "The request is larger than 40 MB. Send fewer or smaller pictures."


class BodyTooSlow(UserError):
    code = "body_too_slow"
    sentence = "The request did not arrive within a minute. Send it again, or smaller pictures."


class BodyUnreadable(UserError):
    code = "body_unreadable"
    sentence = "The request is no JSON object. Send one, with Content-Type: application/json."


class MessagesUnreadable(UserError):
    code = "messages_unreadable"
    sentence = (
        "The messages are not a chat: user and assistant in turns, the last one the user's, each "
        "with text, and pictures as image_url."
    )


class ImageOutOfPlace(UserError):
    code = "image_out_of_place"
    sentence = "Pictures belong into messages of the user. Move them there and try again."


class ImageNotData(UserError):
    code = "image_not_data"
    sentence = (
        "Addresses are not fetched. Send the picture itself, as data:image/png;base64,... in "
        "image_url.url."
    )


class AnswerBroken(UserError):
    code = "answer_broken"
    sentence = "The answer broke off and cannot be completed as it began. Ask again."


class Stopped(UserError):
    code = "stopped"
    sentence = "Stopped. Ask again whenever you like."


class ConversationOver(UserError):
    code = "conversation_over"
    sentence = (
        "This conversation has reached its limit. Press Ask to start afresh: the image is then "
        "read again."
    )


class ConversationGone(UserError):
    code = "conversation_gone"
    sentence = (
        "The cache of this answer has been released to make room. Press Ask, and the image is "
        "read again."
    )


class Restarting(UserError):
    code = "restarting"
    sentence = "The accelerator failed and the service is restarting. Ask again in a minute."


# Said with `rotatek.engine.events.Restarted`: not an error, the answer follows.
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


def _short(value: object, limit: int = 40) -> str:
    """A value as one printable line of at most `limit` characters."""
    try:
        text = str(value[:limit] if isinstance(value, str | bytes) else value)
    except Exception:
        text = type(value).__name__
    text = "".join(c if c.isprintable() else " " for c in text[: 4 * limit]).strip()
    return text if len(text) < limit else text[: limit - 1] + "…"


def public_message(exc: BaseException) -> str:
    """What a visitor may read about `exc`.

    A `UserError` speaks for itself; memory and disk exhaustion have their own sentence; anything
    else becomes an id, logged with its traceback. The log gets each exception's type, frames and
    the size and hash of its message; the message itself only at DEBUG level, which is off unless
    the operator turns it on.
    """
    if isinstance(exc, UserError):
        return exc.message
    if isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError":
        return OutOfMemory.sentence
    if isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull.sentence
    ident = secrets.token_hex(2)
    log.error("id %s\n%s", ident, "\n".join(_describe(link) for link in _chain(exc)))
    log.debug("id %s message: %s", ident, exc)
    return f"Something went wrong (id {ident})"


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
