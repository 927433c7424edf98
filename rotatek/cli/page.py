"""`rotatek page`: serve the web page."""

import argparse
from importlib.util import find_spec

from rotatek.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: the page reads the environment, as `DEPLOY.md` says."""
    parser.epilog = "ROTATEK_MODELS names the models, the default first."


def run(args: argparse.Namespace) -> None:
    """Serve until interrupted.

    Raises:
        UserError: where the page's dependencies are not installed.
    """
    if find_spec("gradio") is None or find_spec("plotly") is None:
        raise UserError("The web page is not installed. Install rotatek[app].")
    from rotatek.page.server import main  # noqa: PLC0415  # gradio takes seconds

    main()
