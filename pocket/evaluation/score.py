"""Score a model as the page serves it: `python -m pocket.evaluation.score FILE.jsonl ...`.

Every question of the files ({"image", "question", "answer" or "answers", "kind" or "category"}) is
answered uncompressed by the library's own engine, margins and all. Prints the share right by kind
(whole words; a receipt's total by its amount; one word, or a sentence, where that was wanted) and
how right the answers are that the page would show without its caution. With --splits it also draws
measured splits into files of the same form, which `rotatek evaluate --suite` reads, too. With
--calibrate the caution itself is learned, from the answers to the folders that are named, and
written into the file that the page reads. --card keeps the figures for the model's card, and
--scanned what compression did to the scanned split.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image

from pocket.evaluation.questions import SIZES, draw_items
from pocket.generate import SPLITS
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished
from rotatek.evaluation.cells import Results
from rotatek.evaluation.result_json import text_of
from rotatek.inputs.request import make_request, open_image
from rotatek.inspect import doubt
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.models import load

RESULTS: Final = Path(__file__).parents[2] / "assets" / "results"
USUAL: Final = ((448, 448), (672, 448), (728, 728))  # of splits without sizes of their own
COMMAND: Final = "python -m pocket.evaluation.score FILE.jsonl"
COMPRESSION: Final = "sh pocket/evaluation/compression.sh RESULT_FOLDER 4"
LEAST: Final = 25  # answers of a bin of confidence
LEAST_SPACES: Final = 3  # between the words of a sentence
LONGEST: Final = 96  # tokens of an answer; whole pages are not asked for here


@dataclass(frozen=True)
class Asked:
    """One question of a file, and its true answers."""

    picture: Path
    question: str
    accepted: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class Answer:
    """An answer, its confidence, and whether it is right."""

    asked: Asked
    text: str
    confidence: float
    right: bool


def read(path: Path) -> list[Asked]:
    """The questions of a file, those about one picture together."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        accepted = tuple(row["answers"] if "answers" in row else [row["answer"]])
        kind = row.get("kind", row.get("category", "all"))
        out.append(Asked(path.parent / row["image"], row["question"], accepted, kind))
    return sorted(out, key=lambda asked: asked.picture)


def write(split: str, documents: int, folder: Path) -> Path:
    """Draw a split's documents with their short questions into files; returns the questions'."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for width, height in SIZES.get(split, USUAL):
        drawn = draw_items(split, (width, height), documents, 3)
        for number, (pixels, items) in enumerate(drawn):
            name = f"{width}x{height}-{number:03d}.png"
            Image.fromarray(pixels).save(folder / name)
            rows += [
                {"image": name, "question": i.question, "answers": [i.truth], "category": i.kind}
                for i in items
                if i.kind != "transcribe"
            ]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def plain(text: str) -> str:
    """Small letters and figures, single spaces."""
    return re.sub(r"[^\w.%]+", " ", text.lower()).strip(" .%")


def is_right(asked: Asked, answer: str) -> bool:
    """Whether an answer is one of the true ones, or says it in a few words more.

    Of what is reckoned the result counts, not the working before it ("3 + 4 = 7").
    """
    if asked.kind == "reckon":
        answer = answer.rpartition("=")[2]
    have = plain(answer)
    if asked.kind == "word" and " " in have:
        return False
    if asked.kind == "sentence":
        said = any(f" {plain(truth)} " in f" {have} " for truth in asked.accepted)
        return said and have.count(" ") >= LEAST_SPACES
    for truth in asked.accepted:
        want = plain(truth)
        if asked.kind == "receipt":  # of an amount the figure; of a name the letters
            digits = re.sub(r"[^\d.]", "", truth)
            if "total" in asked.question.lower():
                if digits in re.findall(r"\d+\.\d\d|\d+", answer.replace(",", "")):
                    return True
                continue
            if re.sub(r"[^a-z0-9]", "", truth.lower()) in re.sub(r"[^a-z0-9]", "", answer.lower()):
                return True
            continue
        within = len(want) > 1 and f" {want} " in f" {have} " and len(have) <= 3 * len(want) + 12
        if want == have or within:
            return True
    return False


def answers(engine: Engine, questions: list[Asked], settings: Settings) -> Iterator[Answer]:
    """The engine's answers."""
    for asked in questions:
        request = make_request(open_image(asked.picture), asked.question, LONGEST)
        text, sure = "", 0.0
        for event in engine.compare(request, {"answer": settings}, trace=False):
            if isinstance(event, Failed):
                raise SystemExit(f"{asked.picture.name}: {event.message}")
            if isinstance(event, Finished):
                text, sure = event.answer, float(event.metrics["confidence"])
        yield Answer(asked, text, sure, is_right(asked, text))


def calibrated(given: list[Answer]) -> list[dict[str, float]]:
    """Bins of confidence, each with the share right of at least `LEAST` answers, never falling.

    Source: pool adjacent violators; Zadrozny and Elkan, "Transforming classifier scores into
    accurate multiclass probability estimates", KDD 2002.
    """
    order = sorted(given, key=lambda one: one.confidence)
    groups = [order[i : i + LEAST] for i in range(0, len(order), LEAST)]
    if len(groups) > 1 and len(groups[-1]) < LEAST:
        groups[-2:] = [groups[-2] + groups[-1]]
    bins: list[tuple[float, int, int]] = []  # least confidence, answers, right ones
    for group in groups:
        bins.append((group[0].confidence, len(group), sum(one.right for one in group)))
        while len(bins) > 1 and bins[-2][2] * bins[-1][1] >= bins[-1][2] * bins[-2][1]:
            (least, n, right), (_, more, also) = bins[-2:]
            bins[-2:] = [(least, n + more, right + also)]
    return [
        {"from": 0.0 if i == 0 else round(least, 5), "n": n, "exact": round(right / n, 4)}
        for i, (least, n, right) in enumerate(bins)
    ]


def report(name: str, given: list[Answer], bins: tuple[doubt.Bin, ...]) -> dict[str, Any]:
    """The figures of one file."""
    kinds: dict[str, list[bool]] = defaultdict(list)
    for one in given:
        kinds[one.asked.kind].append(one.right)
    shown = [one.right for one in given if not doubt.doubted(one.confidence, bins)]
    return {
        "file": name,
        "questions": len(given),
        "right": round(sum(one.right for one in given) / max(1, len(given)), 4),
        "kinds": {kind: [sum(v), len(v)] for kind, v in sorted(kinds.items())},
        "without_caution": len(shown),
        "right_without_caution": round(sum(shown) / max(1, len(shown)), 4),
    }


def keep(path: Path, changes: dict[str, Any]) -> None:
    """Put figures into a results file, which may not be there yet; what is not named stays, inside
    a dictionary, too."""
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, new in changes.items():
        results[name] = results.get(name, {}) | new if isinstance(new, dict) else new
    path.write_text(text_of(results), encoding="utf-8")


def read_files(files: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """Figures of files, as the card is drawn from them."""
    kind = "fp32" if device == "cpu" else "bf16"
    return {"command": COMMAND, "type": kind, "device": device, "files": files}


def scanned_table(folder: Path) -> dict[str, Any]:
    """The table of a folder of `rotatek evaluate`, as the card shows it."""
    results = Results.load(folder)
    rows = [
        {"label": cell.row, "nominal_kv": cell.nominal, "actual_kv": cell.live,
         "score": cell.score.mean, "interval": [cell.score.low, cell.score.high]}
        for cell in results.cells
    ]  # fmt: skip
    questions = results.runs[0]["tables"][0]["questions"]
    return {"scanned": {"command": COMPRESSION, "questions": questions, "rows": rows}}


def told(given: list[Answer]) -> list[list[Any]]:
    """Question, truth, answer, confidence and whether it is right, of each."""
    return [
        [a.asked.question, a.asked.accepted[0], a.text, round(a.confidence, 5), a.right]
        for a in given
    ]


def line(figures: dict[str, Any]) -> str:
    """One line of text for a file."""
    kinds = " ".join(f"{kind} {a}/{n}" for kind, (a, n) in figures["kinds"].items())
    return (
        f"{figures['file']}: {figures['right']:.3f} of {figures['questions']}; {kinds}; without "
        f"a caution {figures['without_caution']}, right {figures['right_without_caution']:.3f}"
    )


def main(argv: list[str] | None = None) -> None:
    """Score as the command line says."""
    p = argparse.ArgumentParser(prog="python -m pocket.evaluation.score", description=__doc__)
    p.add_argument("files", type=Path, nargs="*", help="questions, with pictures beside them")
    p.add_argument("--splits", nargs="*", default=[], choices=SPLITS, help="drawn and asked, too")
    p.add_argument("--documents", type=int, default=6, help="of a split, at each of its sizes")
    p.add_argument("--folder", type=Path, default=Path("drawn"), help="where splits are drawn to")
    p.add_argument("--write-only", action="store_true", help="draw the splits, ask nothing")
    p.add_argument("--model", default="pocket", help="its name, or a folder of weights")
    p.add_argument("--device", help="cuda where there is one")
    p.add_argument("--calibrate", nargs="*", default=[], help="folders to learn the caution from")
    p.add_argument("--results", type=Path, help="and where it goes, if not into the model's own")
    p.add_argument("--json", type=Path, help="write all figures and answers here")
    p.add_argument("--card", type=Path, help="keep the figures here for the model's card")
    p.add_argument("--scanned", type=Path, help="... and those of this folder of `evaluate`")
    args = p.parse_args(argv)
    files = [*args.files]
    files += [write(split, args.documents, args.folder / split) for split in args.splits]
    if args.card and args.scanned:
        keep(args.card, scanned_table(args.scanned))
    if args.write_only or not files:
        return
    engine = Engine(load(args.model, args.device))
    full = Settings(channels=CHANNELS["full"]())
    bins = doubt.load_bins(RESULTS).get(Path(args.model).name, ())
    given: dict[str, list[Answer]] = {}
    for path in files:
        name = path.parent.name
        given[name] = list(answers(engine, read(path), full))
        sys.stdout.write(line(report(name, given[name], bins)) + "\n")
        sys.stdout.flush()
    if args.calibrate:
        learned = calibrated([a for name in args.calibrate for a in given[name]])
        own = args.results or RESULTS / f"{Path(args.model).name}.json"
        keep(own, {"calibration": {"bins": learned, "of": args.calibrate}})
        bins = tuple(doubt.Bin(b["from"], int(b["n"]), b["exact"]) for b in learned)
        sys.stdout.write("after calibration:\n")
        for name, mine in given.items():
            sys.stdout.write(line(report(name, mine, bins)) + "\n")
    figures = {name: report(name, mine, bins) for name, mine in given.items()}
    if args.card:
        keep(args.card, read_files(list(figures.values()), engine.vlm.device.type))
    found = [figures[name] | {"answers": told(mine)} for name, mine in given.items()]
    if args.json:
        args.json.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
