"""Tokens, confidence and live bytes of the settings that must not change, on six pictures.

    python -m tests.golden           compare all six pictures with tests/golden.json: two minutes
    python -m tests.golden sign.png  compare one
    python -m tests.golden --write   write the file anew

`tests/unit/test_methods.py` compares one's first turn. A change of code leaves the file as it is; a
change of a method says in its commit what moved.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rotatek import Engine, Settings, make_request, open_image
from rotatek.engine.conversation import Conversation
from rotatek.engine.events import Failed, Finished, Token
from rotatek.paths import assets

FILE: Final = Path(__file__).with_name("golden.json")
PICTURES: Final = {  # two questions each: the second one meets the compressed cache alone
    "receipt.png": ("What is the total?", "Write down the text on this page."),
    "bars.png": ("Which month is highest?", "Convert the chart to a table."),
    "table.png": ("What is the title?", "Convert the table to markdown."),
    "form.png": ("What is the name?", "Write down the text on this page."),
    "page.png": ("What is the page about?", "Write down the text on this page."),
    "sign.png": ("What does the sign say?", "What is the date?"),
}
NEW_TOKENS: Final = 24

SMALLER: Final = (2, 3, 5, 8, 12, 16, 24, 64)
PRUNERS: Final = ("fastv", "visionzip", "divprune", "dart", "pyramiddrop", "snapkv", "random")
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "uncompressed": {"channels": "full"},
    **{f"keep {keep}": {"keep_channels": keep} for keep in (0.125, 0.25, 0.5, 1.0)},
    **{f"weighting {name}": {"weighting": name} for name in ("none", "general")},
    **{f"solver {name}": {"solver": name} for name in ("eigh", "paper")},
    **{f"smaller {times}": {"smaller": times} for times in SMALLER},
    "smaller 8 none": {"smaller": 8, "weighting": "none"},
    "smaller 8 general": {"smaller": 8, "weighting": "general"},
    "think": {"channels": "think"},
    "spark sign": {"channels": "spark"},
    "spark mean": {"channels": "spark", "recovery": "mean"},
    **{f"kivi {bits}": {"channels": "kivi", "number_bits": bits} for bits in ("2", "4")},
    "kivi 4/2, 64, 32": {"channels": "kivi", "value_bits": "2", "group": "64", "residual": "32"},
    **{
        f"turboquant {bits}": {"channels": "turboquant", "number_bits": bits}
        for bits in ("1", "2.5", "4")
    },
    "turboquant 3/2": {"channels": "turboquant", "number_bits": "3", "value_bits": "2"},
    "vidkv": {"channels": "vidkv"},
    **{f"{name} .4": {"channels": "full", "tokens": name, "keep_tokens": 0.4} for name in PRUNERS},
    **{
        f"{name} .4, keep .25": {"tokens": name, "keep_tokens": 0.4, "keep_channels": 0.25}
        for name in ("fastv", "visionzip")
    },
    **{
        f"{name} .5, smaller 8": {"tokens": name, "keep_tokens": 0.5, "smaller": 8}
        for name in ("fastv", "pyramiddrop")
    },
    "fastv .3 behind layer 3": {"tokens": "fastv", "keep_tokens": 0.3, "fastv_layer": 3},
}


def settings(name: str) -> Settings:
    """The settings of a case."""
    return Settings.of(**({"tokens": "none"} | dict(CASES[name])))


def answers(engine: Engine, picture: str, turns: int = 2) -> Iterator[dict[str, Any]]:
    """A row a case: the turns' tokens, confidence, and live bytes at their ends."""
    image = open_image(assets() / "examples" / picture)
    first, second = PICTURES[picture]
    columns = {name: settings(name) for name in CASES}
    conversation = Conversation()
    rows: dict[str, dict[str, Any]] = {
        name: {"picture": picture, "case": name, "tokens": [], "confidence": [], "bytes": []}
        for name in CASES
    }
    request = make_request(image, first, NEW_TOKENS)
    for stream in (
        lambda: engine.compare(request, columns, trace=False, conversation=conversation),
        lambda: engine.follow(conversation, second, NEW_TOKENS),
    )[:turns]:
        for row in rows.values():
            row["tokens"].append([])
        for event in stream():
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Token):
                rows[event.column]["tokens"][-1].append(event.token_id)
            elif isinstance(event, Finished):
                row, metrics = rows[event.column], event.metrics
                row["confidence"].append(round(metrics["confidence"], 4))
                row["bytes"].append(metrics["kv_bytes"])
    conversation.close()
    yield from rows.values()


def differences(engine: Engine, picture: str, turns: int = 2) -> list[str]:
    """What is not as the file has it: tokens and bytes equal, confidence within .002."""
    stored = {row["case"]: row for row in json.loads(FILE.read_text()) if row["picture"] == picture}
    found = {row["case"]: row for row in answers(engine, picture, turns)}
    wrong = []
    for name, row in stored.items():
        mine = found[name]
        pairs = zip(mine["confidence"], row["confidence"][:turns], strict=True)
        exact = all(mine[key] == row[key][:turns] for key in ("tokens", "bytes"))
        if not exact or any(abs(a - b) > 0.002 for a, b in pairs):
            wrong.append(f"{picture}, {name}:\n  found {mine}\n  file  {row}")
    return wrong + [f"{picture}, {name}: not in the file" for name in found.keys() - stored.keys()]


def main(arguments: list[str]) -> int:
    """The command of the file's head."""
    engine = Engine("pocket", "cpu")
    if arguments == ["--write"]:
        rows = [json.dumps(row) for picture in PICTURES for row in answers(engine, picture)]
        FILE.write_text("[\n" + ",\n".join(rows) + "\n]\n")
        return 0
    wrong = [line for picture in arguments or PICTURES for line in differences(engine, picture)]
    print("\n".join(wrong) or "as in the file")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
