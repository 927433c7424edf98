"""The folder of files that are no code: the embedded models, the examples, the page's own."""

from pathlib import Path


def assets() -> Path:
    """The folder of assets: the package's own where it is installed, else the checkout's.

    A wheel has them as `rotatek/assets`. A checkout has no such folder, but `assets/` beside
    `rotatek/`. The package's own comes first: a folder beside an installed package is not ours.

    Returns:
        An absolute path. It is not checked: the code that opens a file there reports a missing one.
    """
    package = Path(__file__).resolve().parent
    installed = package / "assets"
    return installed if installed.is_dir() else package.parent / "assets"
