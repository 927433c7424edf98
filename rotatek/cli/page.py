"""`rotatek page`: serve the web page."""

import argparse
import os
from importlib.util import find_spec

from rotatek.errors import SettingError, UserError
from rotatek.service.listening import check_address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "ROTATEK_MODELS names the models, the default first."


def run(args: argparse.Namespace) -> None:
    if find_spec("gradio") is None or find_spec("plotly") is None:
        raise UserError("The web page is not installed. Install rotatek[app].")
    host = os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    port = os.environ.get("GRADIO_SERVER_PORT", "7860")
    if not port.isdecimal():  # gradio's import would fail
        raise SettingError("GRADIO_SERVER_PORT", "a whole number", port)
    check_address(host, int(port), taken=False)  # gradio takes the next one, and says so
    from rotatek.page.server import main  # noqa: PLC0415  # gradio takes seconds

    main()
