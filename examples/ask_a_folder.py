"""A folder of pictures, read once into a store; then two questions to all of them.

    python examples/ask_a_folder.py [FOLDER STORE]

The second run reads nothing: every page is found in the store by its pixels.
"""

import sys
import tempfile
import time
from pathlib import Path

from rotatek import Engine, Settings
from rotatek.pictures import Pictures
from rotatek.pictures.indexing import files_of, index, labels_of

FOLDER = Path(__file__).parents[1] / "assets" / "examples"


def main(folder: str = str(FOLDER), store: str = "") -> None:
    """Index, ask twice, and print what both took."""
    with tempfile.TemporaryDirectory() as spare:
        pictures = Pictures(Engine("pocket", "cpu"), Settings.of(smaller=8), store or spare)
        assert pictures.store is not None
        began = time.perf_counter()
        pages = list(index(pictures, files_of([Path(folder)])))
        read = [page.picture for page in pages if page.picture is not None]
        full, kept = (sum(getattr(p, n) for p in read) for n in ("full_bytes", "file_bytes"))
        seconds = time.perf_counter() - began
        print(
            f"{len(read)} pages in {seconds:.1f} s: {full:,} -> {kept:,} bytes, 1/{full / kept:.0f}"
        )
        labels = labels_of(pictures.store)
        for question in ("What is the title?", "What is the total?"):
            began = time.perf_counter()
            answers = pictures.ask([name for _, name in labels], question)
            print(f"\n{question}  ({time.perf_counter() - began:.1f} s for all)")
            for (label, _), answer in zip(labels, answers, strict=True):
                print(f"  {Path(label).name:<14} {answer.confidence:.2f}  {answer.text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
