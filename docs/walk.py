"""The tables of `assets/results/families.json`, which `python -m benchmarks families` writes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parent.parent / "assets" / "results" / "families.json"
GROUPS: Final = {
    "runs with overlay": "run through every door, with the overlay on the picture",
    "runs without": "run through every door, without the overlay",
    "through generate only": "run through `model.generate` only",
    "refused": "refused in one sentence",
    "not tried": "not tried",
}
REASONS: Final = (  # of refusals, as tables say them: by what the sentence holds
    ("no image-text-to-text models with an image token", "no image token"),
    ("no decoder layers", "no decoder layers of the usual form"),
    ("cross-attention", "cross-attention, or an encoder and a decoder"),
    ("layers of other kinds", "layers of other kinds"),
    ("latent ones (MLA)", "latent Keys and Values (MLA)"),
    ("several streams", "several streams of hidden states"),
    ("not token by token", "does not generate token by token"),
    ("names no text that becomes a picture", "its processor fails on a picture"),
    ("does not take these pictures", "its processor fails on a picture"),
)


def read() -> dict[str, Any]:
    """The committed walk."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def _reason(sentence: str) -> str:
    """A refusal's reason in a few words, with the kinds of layers that it names."""
    short = next((words for part, words in REASONS if part in sentence), sentence)
    kinds = re.search(r"layers of other kinds \((.*?)\)", sentence)
    return f"{short} ({kinds[1]})" if kinds else short


def _grouped(rows: list[dict[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """What tables say of some classes, and the model types of which it is said."""
    for group, words in GROUPS.items():
        mine: dict[str, list[str]] = {}
        for row in rows:
            if row["group"] == group:
                why = _reason(row["sentence"]) if group in ("refused", "not tried") else ""
                mine.setdefault(why, []).append(row["type"])
        for why, types in sorted(mine.items(), key=lambda one: -len(one[1])):
            yield f"{words}: {why}" if why else words, types


def table() -> str:
    """Every class, by what becomes of it."""
    found = read()
    used = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    title = f"transformers {found['transformers']}" + (f", with {used}" if used else "")
    lines = [f"| {title} | | model types |", "|---|---|---|"]
    for words, types in _grouped(found["classes"]):
        lines.append(f"| {words} | {len(types)} | {', '.join(types)} |")
    return "\n".join(lines)


def counts() -> str:
    """How many classes are in each group, in a sentence."""
    found = read()
    rows = found["classes"]
    overlay, plain, generate, refused, untried = (
        sum(row["group"] == group for row in rows) for group in GROUPS
    )
    left = f"{refused} are refused, {untried} [untried]" if untried else f"{refused} are [refused]"
    return (
        f"Of {len(rows)} image-text classes that transformers has, {overlay + plain} run, "
        f"{generate} in `generate` alone; {left}(docs/families.md)."
    )
