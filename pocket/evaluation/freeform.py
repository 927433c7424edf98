"""Draw the pages that are asked freely: `python -m pocket.evaluation.freeform`.

Chromium lays out `assets/freeform/pages.html`; each of its sections becomes a WebP picture beside
it. The pages follow no template of training.
"""

import argparse
import io
import shutil
import sys
from pathlib import Path
from typing import Final

from PIL import Image

FOLDER: Final = Path(__file__).parents[2] / "assets" / "freeform"
COLOURS: Final = 32  # of a picture: half the bytes, no visible change


def pictures(page: Path) -> dict[str, Image.Image]:
    """The picture of each section of an HTML file, by its id."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a test dependency

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        tab = browser.new_page(viewport={"width": 760, "height": 900})
        tab.goto(page.resolve().as_uri())
        sections = tab.query_selector_all("section")
        shots = {str(s.get_attribute("id")): s.screenshot() for s in sections}
        browser.close()
    return {name: Image.open(io.BytesIO(shot)).convert("RGB") for name, shot in shots.items()}


def main(argv: list[str] | None = None) -> None:
    """Draw as the command line says."""
    p = argparse.ArgumentParser(prog="python -m pocket.evaluation.freeform", description=__doc__)
    p.add_argument("--folder", type=Path, default=FOLDER, help="of pages.html and its pictures")
    folder = p.parse_args(argv).folder
    for name, image in pictures(folder / "pages.html").items():
        few = image.quantize(COLOURS).convert("RGB")
        few.save(folder / f"{name}.webp", lossless=True, quality=100, method=6)
        sys.stdout.write(f"{name}.webp {image.width} x {image.height}\n")


if __name__ == "__main__":
    main()
