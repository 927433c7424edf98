"""Serve the page at port 7860: `python app.py`. Everything it does is in `rotatek.page`."""

import sys

from rotatek.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["page"]))
