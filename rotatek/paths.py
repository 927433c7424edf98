"""Where the files that are no code lie: the embedded models, the examples, the page's own."""

from pathlib import Path


def assets() -> Path:
    """The folder of assets: the package's own where it is installed, else the checkout's.

    A wheel holds them as `rotatek/assets`. A checkout has no such folder, but `assets/` beside
    `rotatek/`. The package's own comes first: what lies beside an installed package is not ours.

    Returns:
        An absolute path. It is not checked: whoever opens a file there says what is missing.
    """
    package = Path(__file__).resolve().parent
    installed = package / "assets"
    return installed if installed.is_dir() else package.parent / "assets"
