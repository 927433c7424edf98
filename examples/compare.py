"""Every registered method at one nominal budget, on one picture.

    python examples/compare.py [PICTURE QUESTION]

All columns but the first keep the same share of the visual cache; they share as few prefills as
there are ways to drop tokens. `rotatek compare` prints the same from the command line.
"""

import sys
from pathlib import Path

from rotatek import Engine, FastV, RotateK, Settings, make_request, open_image
from rotatek.engine.events import Failed, Finished
from rotatek.methods.settings import matched

PICTURE = Path(__file__).parents[1] / "assets" / "examples" / "bars.png"


def main(picture: str = str(PICTURE), question: str = "What is the title?") -> None:
    """Print a line for each column."""
    chosen = Settings(tokens=FastV(keep=0.4), channels=RotateK(keep=0.25))
    columns = matched(chosen)
    engine = Engine("pocket", "cpu")
    request = make_request(open_image(Path(picture)), question, 64)
    print(f"{'column':<24} {'nominal':>7} {'bytes':>6} {'same':>5}  answer")
    for event in engine.compare(request, columns, trace=False):
        if isinstance(event, Failed):
            sys.exit(event.message)
        if isinstance(event, Finished):
            figures = event.metrics
            share = figures["kv_bytes"] / figures["kv_bytes_full"]
            print(
                f"{event.column:<24} {figures['nominal_kv']:>7.3f} {share:>6.3f} "
                f"{figures['agreement']:>5.2f}  {event.answer}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
