"""Files as clients send them: data URIs, recognised by their content, not by their media
type.

White space, missing padding, the URL-safe alphabet, percent signs and any media type are accepted;
only bytes that cannot be base64 are refused.
"""

import base64
import binascii
import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from rotatek import errors
from rotatek.inputs.request import MAX_SENT_BYTES

SCHEME: Final = "data:"
ADDRESSES: Final = ("url", "file_data")  # the fields that may be one
FLAG: Final = re.compile(r"base64\s*$", re.IGNORECASE)
WHITE: Final = b" \t\r\n\x0b\x0c"
ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
BROKEN: Final = "The picture's base64 cannot be read. Encode the file's bytes anew and try again."


def file_of(given: Any) -> bytes:
    """The bytes of a picture or a PDF, from any field of a part that may hold them.

    Args:
        given: `image_url` or `file` of a part: an object with `url` or `file_data`; or an address
            alone.

    Raises:
        UserError: for an address that would have to be fetched, and broken data.
    """
    address = given
    if isinstance(given, dict):
        address = next(filter(None, map(given.get, ADDRESSES)), None)
    if not isinstance(address, str):
        raise errors.ImageNotData
    address = address.lstrip()
    if address[: len(SCHEME)].lower() != SCHEME:
        raise errors.ImageNotData
    head, comma, data = address[len(SCHEME) :].partition(",")
    if not comma:
        raise errors.ImageNotData
    sent = data.encode("utf-8", "surrogatepass")
    plain = unquote_to_bytes(sent) if b"%" in sent else sent
    try:
        file = decoded(plain)
    except errors.ImageDamaged:
        if FLAG.search(head):
            raise
        file = plain  # percent-encoded bytes, as data URIs without base64 have them
    if len(file) > MAX_SENT_BYTES:
        raise errors.ImageTooLarge
    return file


def document_of(given: Any) -> bytes:
    """`file_of` of a `file` part, whose data may be base64 without any scheme.

    Raises:
        UserError: as of `file_of`; FileNotGiven.
    """
    data = given.get("file_data") if isinstance(given, dict) else None
    if isinstance(data, str) and data and ":" not in data[:9]:
        given = {"file_data": f"{SCHEME};base64,{data}"}
    try:
        return file_of(given)
    except errors.ImageNotData as error:
        raise errors.FileNotGiven from error


def decoded(text: bytes) -> bytes:
    """The bytes of base64, in either alphabet, with or without white space and padding.

    Raises:
        ImageTooLarge: before it is decoded.
        ImageDamaged: where it is no base64.
    """
    digits = text.translate(ALPHABET, WHITE).rstrip(b"=")
    if len(digits) > MAX_SENT_BYTES * 4 // 3 + 4:
        raise errors.ImageTooLarge
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.ImageDamaged(BROKEN) from error
