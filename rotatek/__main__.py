"""`python -m rotatek`: the command line."""

import sys

from rotatek.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
