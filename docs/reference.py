"""Write the API reference from the docstrings: `make api`. What pdoc warns of is an error."""

import sys
import warnings
from pathlib import Path
from typing import Final

import pdoc

import rotatek

MODULES: Final = ("rotatek", "kernels", "viz")


def write(folder: Path) -> None:
    """Write one HTML page a module, and an index, to `folder`.

    Raises:
        UserWarning: where a module cannot be imported or a public name does not resolve.
    """
    for name in rotatek.__all__:  # they load on first use, and pdoc shows only loaded ones
        setattr(rotatek, name, getattr(rotatek, name))
    pdoc.render.configure(docformat="google")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pdoc.pdoc(*MODULES, output_directory=folder)


def main() -> None:
    """Write to the folder that the command line names."""
    folder = Path(sys.argv[1])
    write(folder)
    sys.stdout.write(f"{folder / 'index.html'}\n")


if __name__ == "__main__":
    main()
