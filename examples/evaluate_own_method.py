"""A channel method of one's own, evaluated beside the built-in ones on a few questions.

    python examples/evaluate_own_method.py [QUESTIONS FOLDER]

A package of its own would name the method by an entry point, under
`[project.entry-points."rotatek.channels"]`; command line, page and tables then know it, too.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rotatek import BASELINE, ChannelMethod, KeepAll, RotateK, Settings, ThinK
from rotatek.evaluation.evaluate import Evaluation
from rotatek.evaluation.suite import FileSuite
from rotatek.evaluation.tables import Row, Table
from rotatek.methods.channels import LayerStates, Store, full_visual
from rotatek.methods.options import option

QUESTIONS = Path(__file__).with_name("questions.jsonl")


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


def main(questions: str = str(QUESTIONS), out: str | None = None) -> None:
    """Answer the questions under each method, and print the report."""
    rows = [Row("Uncompressed", BASELINE)]
    for method in (LoudestChannels(keep=0.125), ThinK(keep=0.125), RotateK(keep=0.125)):
        rows.append(Row(method.label, Settings(tokens=KeepAll(), channels=method)))
    table = Table("own", "An eighth of the Key channels", tuple(rows))
    folder = Path(out or tempfile.mkdtemp())
    evaluation = Evaluation("pocket", FileSuite(Path(questions)), [table], folder, "cpu")
    evaluation.answer()
    print(evaluation.write_report().read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
