"""What a visitor takes away: answers as JSON and CSV, code that reproduces them, a link."""

import csv
import hashlib
import io
import json
import shlex
from html import escape
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

import numpy as np

import rotatek
from rotatek.errors import SettingError
from rotatek.inputs import MAX_NEW_TOKENS, MAX_QUESTION
from rotatek.page.choices import Example, decode, encode
from rotatek.page.run import Column, Run
from rotatek.settings import Settings

PICTURE: Final = "picture.png"  # what code calls an image of the visitor's own
MAX_QUERY: Final = 8_000  # characters of a link's query
FIGURES: Final = (
    "kv_bytes", "kv_bytes_full", "nominal_kv", "prefill_ms", "agreement", "first_divergence", "kl",
    "confidence", "stopped",
)  # fmt: skip
COLUMNS: Final = (
    "turn", "question", "column", "answer", "failure", "new_tokens", "visual_tokens",
    "visual_tokens_kept", "decode_ms_per_token", "attention", *FIGURES,
)  # fmt: skip


def digest(pixels: np.ndarray) -> str:
    """What tells one picture from another: SHA-256 of its RGB bytes, and its size."""
    height, width = pixels.shape[:2]
    return f"{width}x{height}:{hashlib.sha256(pixels.tobytes()).hexdigest()}"


def record(run: Run) -> dict[str, Any]:
    """The whole conversation: what was asked under which settings, and all that was measured."""
    height, width = run.pixels.shape[:2]
    return {
        "rotatek": rotatek.__version__,
        "model": run.model,
        "image": {"width": width, "height": height, "sha256": digest(run.pixels).split(":")[1]},
        "max_new_tokens": run.max_new_tokens,
        "turns": [
            {
                "question": turn.question,
                "columns": {title: _column(column) for title, column in turn.columns.items()},
            }
            for turn in run.turns
        ],
    }


def _column(column: Column) -> dict[str, Any]:
    """One answer and its figures; those not known yet are None."""
    filled, done = column.prefilled, column.finished
    metrics = done.metrics if done is not None else {}
    return {
        "answer": done.answer if done is not None else column.answer,
        "failure": column.failure,
        "new_tokens": len(column.pieces),
        "visual_tokens": filled.visual_tokens if filled is not None else None,
        "visual_tokens_kept": filled.visual_kept if filled is not None else None,
        "decode_ms_per_token": done.decode_ms_per_token if done is not None else None,
        "attention": filled.attention if filled is not None else None,
        **{name: metrics.get(name) for name in FIGURES},
        "kv_bytes_by_part": metrics.get("bytes"),
        "kl_by_token": column.kl,
        "same_token": column.same,
        "settings": column.settings.as_dict(),
    }


def as_json(run: Run) -> str:
    """`record` as text."""
    return json.dumps(record(run), ensure_ascii=False, indent=2)


def as_csv(run: Run) -> str:
    """One line a turn and column: `COLUMNS`, then the settings by name."""
    names = tuple(Settings().as_dict())
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*COLUMNS, *names])
    for number, turn in enumerate(record(run)["turns"], 1):
        for title, column in turn["columns"].items():
            known = column | {"turn": number, "question": turn["question"], "column": title}
            row = [known[name] for name in COLUMNS] + [column["settings"][name] for name in names]
            writer.writerow([_plain(cell) for cell in row])
    return out.getvalue()


def _plain(cell: Any) -> Any:
    """Text that a spreadsheet would take for a formula, made plain text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def python(run: Run, image: str) -> str:
    """A program that gives these answers again."""
    first, *later = run.turns
    talk = ", conversation=talk" if later else ""
    lines = [
        "from pathlib import Path",
        "",
        "from rotatek import Engine, Settings, make_request, open_image",
        *(["from rotatek.conversation import Conversation"] if later else []),
        "from rotatek.events import Finished",
        "",
        f"engine = Engine({run.model!r})",
        f"picture = open_image(Path({image!r}))",
        f"request = make_request(picture, {first.question!r}, {run.max_new_tokens})",
        "columns = {",
        *(f"    {title!r}: {_call(c.settings)}," for title, c in run.columns.items()),
        "}",
        *(["talk = Conversation()"] if later else []),
        f"for event in engine.compare(request, columns{talk}):",
        *_PRINT,
    ]
    for turn in later:
        lines.append(f"for event in engine.follow(talk, {turn.question!r}, {turn.max_new_tokens}):")
        lines += _PRINT
    return "\n".join([*lines, *(["talk.close()"] if later else [])])


_PRINT: Final = (
    "    if isinstance(event, Finished):",
    "        print(f\"{event.column}: {event.answer} ({event.metrics['kv_bytes']} bytes)\")",
)


def _changed(settings: Settings) -> dict[str, Any]:
    """The fields that differ from the defaults."""
    usual = Settings().as_dict()
    return {name: value for name, value in settings.as_dict().items() if value != usual[name]}


def _call(settings: Settings) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in _changed(settings).items())
    return f"Settings({given})"


def command(run: Run, image: str) -> str:
    """The command line that gives the visitor's own column of the first turn again."""
    first = run.turns[0]
    words = ["python", "-m", "rotatek", "ask", image, first.question]
    for name, value in _changed(run.chosen.settings).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--model", run.model, "--max-new-tokens", str(first.max_new_tokens), "--json"]
    return shlex.join(words)


def client(model: str) -> str:
    """A program that asks this very page; `ADDRESS` stands for where it is served."""
    return "\n".join(
        [
            "from gradio_client import Client, handle_file",
            "",
            'client = Client("ADDRESS")',
            "result = client.predict(",
            f'    handle_file("{PICTURE}"), "What is the title?",',
            '    tokens="fastv", keep_tokens=0.4, channels="rotatek", keep_channels=0.25,',
            f'    max_new_tokens=64, model={json.dumps(model)}, api_name="/ask",',
            ")",
            'print(result["answer"], result["kv_bytes"], result["kv_bytes_full"])',
        ]
    )


def code(title: str, text: str, key: str) -> str:
    """A block of code and the button that copies it."""
    return (
        f'<figure class="rk-code" data-code="{key}"><figcaption>{escape(title)}'
        f'<button type="button" data-copy aria-label="Copy: {escape(title, quote=True)}">Copy'
        f'</button></figcaption><pre tabindex="0"><code>{escape(text)}</code></pre></figure>'
    )


def query(
    settings: Settings,
    others: list[Settings],
    question: str,
    example: str | None,
    model: str,
    length: int,
) -> str:
    """A link's query: everything but an image of the visitor's own."""
    pairs = [("s", encode(settings)), *(("x", encode(other)) for other in others)]
    pairs += [("q", question), ("model", model), ("length", str(length))]
    pairs += [("image", example)] if example else []
    return urlencode(pairs)


def read_query(text: str, examples: list[Example], models: list[str]) -> dict[str, Any]:
    """What a link says, checked; names this page does not have are left out.

    Returns any of: settings, others, question, example (an index), model, length.

    Raises:
        SettingError: for settings that there are not.
    """
    try:
        given = parse_qs(text[:MAX_QUERY].lstrip("?"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise SettingError("the link", "one that this page has made", text) from error
    one = {name: values[0] for name, values in given.items()}
    found: dict[str, Any] = {}
    if "s" in one:
        found["settings"] = decode(one["s"])
        found["others"] = [decode(other) for other in given.get("x", [])]
    if one.get("q"):
        found["question"] = one["q"][:MAX_QUESTION]
    if one.get("model") in models:
        found["model"] = one["model"]
    length = one.get("length", "")
    if length.isdecimal() and len(length) < 6 and 1 <= int(length) <= MAX_NEW_TOKENS:
        found["length"] = int(length)
    names = [example.image.stem for example in examples]
    if one.get("image") in names:
        found["example"] = names.index(one["image"])
    return found
