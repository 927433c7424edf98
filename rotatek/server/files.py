"""Files as clients send them: data URIs, read by what they hold and not by what they say.

White space, missing padding, the URL-safe alphabet, percent signs and any media type are the
clients' business; only bytes that cannot be base64 are refused.
"""

import base64
import binascii
import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from rotatek import errors
from rotatek.inputs.request import MAX_SENT_BYTES

SCHEME: Final = "data:"
FLAG: Final = re.compile(r"base64\s*$", re.IGNORECASE)
WHITE: Final = b" \t\r\n\x0b\x0c"
ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
BROKEN: Final = "The picture's base64 cannot be read. Encode the file's bytes anew and try again."


def file_of(given: Any) -> bytes:
    """The bytes of a picture's address.

    Args:
        given: `image_url` of a part: an object with `url`, or the address alone.

    Raises:
        UserError: for an address that would have to be fetched, and for broken data.
    """
    address = given.get("url") if isinstance(given, dict) else given
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


def decoded(text: bytes) -> bytes:
    """What base64 stands for, in either alphabet, with or without white space and padding.

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
