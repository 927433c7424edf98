"""`python -m rotatek.page.learn`: make the example behind the Learn tab anew.

It answers the first example of the gallery with the embedded model and stores one head of it, with
every column's bytes and answers. Run it whenever the embedded weights change: words and figures are
made from what it stores.
"""

import sys

from rotatek.page.learn.story import NAME, make
from rotatek.paths import assets
from rotatek.service.model_list import load_examples, models_on_offer
from rotatek.service.service import Service


def main() -> None:
    """Make the lessons' example anew."""
    path = assets() / "traces" / NAME
    story = make(Service(models_on_offer()[:1]), load_examples(assets() / "examples")[0], path)
    sys.stdout.write(
        f"{path.name}: layer {story.layer}, head {story.head}, {path.stat().st_size:,} bytes\n"
    )


if __name__ == "__main__":
    main()
