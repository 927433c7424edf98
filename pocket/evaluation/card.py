"""Write the third pocket's model card: `python -m pocket.evaluation.card RESULT FOLDER`.

RESULT is the folder that `pocket/training/smol.sh` fills: tables of `pocket.evaluation --json`,
figures of `pocket.evaluation.score --json`, and the training's `log.json`. FOLDER has the shipped
parts; README.md is written into it. The words are those of `smol_card.md`, the figures come from
the files.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from string import Template
from typing import Any, Final

from pocket.evaluation.questions import SCENERY
from pocket.generate import SPLITS
from rotatek.models import smollm2
from rotatek.models.assembly import DOWN, PARTS, RECIPE, VISUAL, stored

NAMES: Final = {
    "own": "training's own renderers, other seeds",
    "fonts": "unseen fonts",
    "renderers": "unseen renderers",
    "topics": "unseen subjects, asked freely",
    "scanned": "vouchers scanned and photographed, of unseen printers and type",
    "small": "directories in small print, in unseen type",
    "browser": "web pages of unseen templates and fonts",
    SCENERY: "pictures without a word, of unseen kinds",
}
ASKED: Final = {  # of files, by their folders
    "handmade": "pages by other hands (`assets/handmade`)",
    "freeform": "pages that are asked freely (`assets/freeform`)",
    "real": "pictures of other programs and people, which are not in this repository",
}
DOUBLINGS: Final = 6  # of the training, the last ones
LOSSES: Final = {"answer_loss": "answer loss", "plain_loss": "divergence from SmolLM2 on text"}
TEMPLATE: Final = Path(__file__).with_name("smol_card.md")


def card(result: Path, parts: Path) -> str:
    """The card's Markdown, of the result folder of a training and the folder of its parts.

    Raises:
        ValueError: where there are no parts or no figures.
    """
    tables, asked = measured(result)
    if not tables and not asked:
        raise ValueError(f"{result} has no figures. Run `smol.sh measure {result}` first.")
    log = result / "log.json"
    rows = json.loads(log.read_text(encoding="utf-8")) if log.is_file() else []
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        shape(parts), training=doublings(rows), measured=figures(tables, asked)
    )


def measured(result: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Tables by split, and the figures of files, of all JSON files of a folder."""
    tables: dict[str, Any] = {}
    asked: list[dict[str, Any]] = []
    for file in sorted(result.glob("*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, list):  # of `score`; a log has no files
            asked += [row for row in found if "without_caution" in row]
            continue
        shares = found.get("declined", {})
        for split in (*SPLITS, SCENERY, "browser"):
            if split in found:
                tables[split] = found[split] | {"declined": shares.get(split)}
    return {name: tables[name] for name in NAMES if name in tables}, asked


def shape(parts: Path) -> dict[str, Any]:
    """What the folder holds: parameters in millions, the rank, megabytes, and the package.

    Raises:
        ValueError: where it holds no parts.
    """
    if not (parts / RECIPE).is_file():
        raise ValueError(f"{parts} has no {RECIPE}. Make it with `python -m pocket.models.ship`.")
    state = stored(parts)
    tower = sum(value.numel() for name, value in state.items() if name.startswith(VISUAL))
    ranks = [len(value) for name, value in state.items() if name.endswith(DOWN)]
    size = sum(file.stat().st_size for file in parts.glob(PARTS))
    return {
        "tower": f"{tower / 1e6:.1f}",
        "changes": f"{(sum(value.numel() for value in state.values()) - tower) / 1e6:.1f}",
        "rank": max(ranks, default=0),
        "size": f"{size / 1e6:.1f}",
        "package": f"{smollm2.PACKAGE}=={smollm2.VERSION}",
    }


def doublings(rows: list[dict[str, Any]]) -> str:
    """What each doubling of the pictures seen has bought, by a training's log."""
    rows = [row for row in rows if row.get("images") and "answer_loss" in row]
    if not rows:
        return ""
    names = [name for name in LOSSES if name in rows[-1]]
    wanted = [rows[-1]["images"] / 2**k for k in reversed(range(DOUBLINGS + 1))]
    nearest = [min(rows, key=lambda row: abs(row["images"] - images)) for images in wanted]
    chosen = {row["step"]: row for row in nearest}.values()
    head = ["pictures", "minutes", *(LOSSES[name] for name in names)]
    lines = [
        [f"{row['images']:,}", f"{row['seconds'] / 60:.1f}", *(f"{row[n]:.3g}" for n in names)]
        for row in chosen
    ]
    said = "What each doubling of the training bought (the last ones also have a smaller rate):"
    return f"{said}\n\n{table(head, lines)}"


def figures(tables: dict[str, Any], asked: list[dict[str, Any]]) -> str:
    """The section of what was measured."""
    out = []
    if tables:
        out.append(
            "`python -m pocket.evaluation --family smol`: exact match with 95 % intervals, on "
            "documents that were not seen.\n"
        )
        head = ["", "right", "short answers", "pages", "declined"]
        out.append(table(head, [_split(name, found) for name, found in tables.items()]))
        kinds = table(["kind of question", "right"], _kinds(tables))
        out.append(f"Answers right by kind of question, over all splits:\n\n{kinds}")
    if asked:
        out.append(
            "Pages by hand, asked in people's words, that nothing in training may follow "
            "(`python -m pocket.evaluation.score`):\n"
        )
        rows = [
            [ASKED.get(row["file"], row["file"]), f"{_share(row['right'])} of {row['questions']}",
             "; ".join(f"{kind} {right} of {n}" for kind, (right, n) in row["kinds"].items())]
            for row in asked
        ]  # fmt: skip
        out.append(table(["", "right", "by kind"], rows))
    return "\n".join(out)


def _split(name: str, found: dict[str, Any]) -> list[str]:
    whole, declined = found["all"], found["declined"]
    parts = [found[part] for part in ("short", "transcription")]
    return [
        NAMES[name],
        f"{_share(whole['exact'])} ({_share(whole['low'])} to {_share(whole['high'])}) "
        f"of {whole['n']}",
        *(_share(part["exact"]) if part["n"] else "" for part in parts),
        "" if declined is None else _share(declined),
    ]


def _kinds(tables: dict[str, Any]) -> list[list[str]]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for found in tables.values():
        for kind, row in found["kind"].items():
            counts[kind][0] += round(row["exact"] * row["n"])
            counts[kind][1] += row["n"]
    ordered = sorted(counts.items(), key=lambda item: -item[1][1])
    return [[kind, f"{right} of {n}"] for kind, (right, n) in ordered]


def _share(value: float) -> str:
    """`.92`, and 1.00 as it is."""
    return f"{value:.2f}".removeprefix("0")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, and an empty line."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(argv: list[str] | None = None) -> None:
    """Write the card as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m pocket.evaluation.card", description=__doc__)
    parser.add_argument("result", type=Path, help="with *.json of the measurement and the training")
    parser.add_argument("folder", type=Path, help="of the shipped parts")
    args = parser.parse_args(argv)
    try:
        text = card(args.result, args.folder)
    except ValueError as exc:
        parser.error(str(exc))
    (args.folder / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
