"""Where a server listens: checked before a model is loaded, and reached past proxies."""

import errno
import os
import socket
import tempfile
from typing import Final

from rotatek.errors import SettingError, UserError

LOOPBACK: Final = "localhost,127.0.0.1,::1"
UPLOADS: Final = "GRADIO_TEMP_DIR"
ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def check_address(host: str, port: int, *, taken: bool = True) -> None:
    """Refuse what cannot be listened at; `taken`: a port that another process has, too.

    Raises:
        UserError: in a sentence that says what to change.
    """
    if not 0 <= port <= 65535:
        raise SettingError("The port", "a whole number from 0 to 65535", port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(f"There is no address {host!r} here. Give another one.") from error
    for family, kind, _, _, address in found if taken else ():
        try:
            with socket.socket(family, kind) as probe:
                if os.name == "posix":  # elsewhere it would share a port that is taken
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno in ABSENT and len(found) > 1:
                continue  # such as ::1 of localhost, where there is no IPv6
            reason = (error.strerror or type(error).__name__).lower()
            raise UserError(
                f"Port {port} of {host} cannot be listened at: {reason}. Give another one."
            ) from error


def past_proxies() -> None:
    """Let this process and its children reach this machine itself, whatever proxy there is."""
    for name in ("no_proxy", "NO_PROXY"):
        given = os.environ.get(name, "").strip()
        os.environ[name] = given if given == "*" else ",".join(filter(None, (given, LOOPBACK)))


def own_uploads() -> None:
    """A folder of this user for what visitors send: gradio's is of whoever started it first.

    Raises:
        UserError: where it cannot be written.
    """
    who = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    usual = os.path.join(tempfile.gettempdir(), f"rotatek-page-{who}")
    folder = os.environ.get(UPLOADS) or usual
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if folder == usual and who not in (os.stat(usual).st_uid, os.environ.get("USERNAME")):
            folder = tempfile.mkdtemp(prefix="rotatek-page-")  # somebody else made that one
        os.environ[UPLOADS] = folder
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"Uploads cannot be kept in {folder}. Name a folder of your own in {UPLOADS}."
        ) from error
