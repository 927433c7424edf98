"""A channel method of one's own, evaluated beside the built-in ones on a few questions.

    python examples/evaluate_own_method.py [SUITE OUT]

SUITE is a folder of pictures with a `questions.jsonl`; without it the project's own is asked a
little. OUT keeps the answers, and a second call asks only what is missing.

A package of its own would name the method by an entry point, under
`[project.entry-points."rotatek.channels"]`; command line, page and tables then know it, too.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rotatek import BASELINE, ChannelMethod, RotateK, Settings, ThinK, load
from rotatek.evaluation.report import markdown, rows
from rotatek.evaluation.run import Run, engine_for
from rotatek.evaluation.suite import Suite
from rotatek.evaluation.tables import UNCOMPRESSED
from rotatek.methods.channels import LayerStates, Store, full_visual
from rotatek.methods.options import option


@dataclass(frozen=True)
class LoudestChannels(ChannelMethod):
    """Keeps the channels of each head whose numbers are largest on average."""

    name, label, summary = "loudest", "Loudest channels", "Keeps each head's loudest channels."

    keep: float = option(0.25, "Share", "of the Key channels", kind="fraction", key="keep_channels")

    def compress(self, states: LayerStates) -> Store:
        """Store k channels of the Keys, and which ones they are."""
        tokens, width = states.keys.shape[2:]
        loudness = states.keys.float().abs().mean(2)  # [B, Hkv, d]
        index = loudness.topk(round(self.keep * width)).indices.sort().values
        keys = states.keys.gather(-1, index[:, :, None].expand(-1, -1, tokens, -1))
        return Store(full_visual(states)._replace(keys=keys, index=index))


def main(folder: str | None = None, out: str | None = None) -> None:
    """Answer a suite's questions under each method, and print the tables."""
    suite = Suite.read(Path(folder)) if folder else Suite.read().taken((), 9)
    settings = {UNCOMPRESSED: BASELINE}
    for method in (LoudestChannels(keep=0.125), ThinK(keep=0.125), RotateK(keep=0.125)):
        settings[method.label] = Settings(channels=method)
    path = Path(out or tempfile.mkdtemp()) / "answers.csv.gz"
    run = Run(engine_for(load("pocket", "cpu"), suite), suite, settings, path)
    for _ in run.answer(run.missing()):
        pass
    print(markdown(rows(path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
