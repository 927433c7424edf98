"""The command line: what it prints, where, and how it refuses."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rotatek import BASELINE, Settings, make_request
from rotatek.cli import main as command
from rotatek.cli.shared import print_json, say
from rotatek.engine.equal_bytes import SLACK, matched_live, measured
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture, present
from tests.tiny import tiny_qwen

HALF = "\ud83d"  # the first half of an emoji
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"  # at which `str.splitlines` cuts
FIELDS = {
    "answer", "new_tokens", "visual_tokens", "visual_tokens_kept", "nominal_kv", "kv_bytes",
    "kv_bytes_full", "prefill_ms", "decode_ms_per_token", "attention",
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model in place of a loaded one; everything else is the real command."""
    from rotatek import models

    monkeypatch.setattr(models, "load", lambda model, device=None: tiny_qwen())


@pytest.fixture
def image(picture: Picture, tmp_path: Path) -> str:
    path = tmp_path / "picture.png"
    picture(400, 300).save(path)
    return str(path)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's status, and what it says on stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        status = command.main([*words])
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def ask(run: Run, image: str) -> Callable[..., dict[str, Any]]:
    """The figures of an answer of a few tokens, with more words behind the question."""

    def ask(*more: str) -> dict[str, Any]:
        status, out, _ = run("ask", image, "what?", "--json", "--max-new-tokens", "4", *more)
        assert status == 0
        return json.loads(out)

    return ask


def test_ask_prints_the_answer_alone_or_every_figure(
    image: str, run: Run, ask: Callable[..., Any]
) -> None:
    status, out, err = run("ask", image, "what?", "--max-new-tokens", "4")
    assert (status, out.count("\n"), err) == (0, 1, "")
    report = ask("--tokens", "fastv", "--keep-tokens", "0.4", "--keep-channels", "0.25")
    assert set(report) >= FIELDS
    assert report["nominal_kv"] == pytest.approx(0.25)
    assert report["visual_tokens_kept"] == round(0.4 * report["visual_tokens"])
    assert report["kv_bytes"] < report["kv_bytes_full"]
    assert report["attention"] in ("reference", "triton")


def test_ask_draws_with_a_seed(ask: Callable[..., Any]) -> None:
    """A seed that was drawn is reported; the same seed gives the same answer."""
    first = ask("--temperature", "1.5", "--option", "top_p=0.95")
    own = first["sampling"]
    assert own.keys() == {"temperature", "top_p", "seed"}
    given = ["--temperature", str(own["temperature"]), "--seed", str(own["seed"])]
    assert ask(*given, "--option", f"top_p={own['top_p']}")["answer"] == first["answer"]
    assert ask()["sampling"] == {} == ask("--seed", "3")["sampling"]


def test_a_stored_cache_answers_further_questions(image: str, tmp_path: Path, run: Run) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    short = ["--max-new-tokens", "3", "--json"]
    told = [
        run("ask", *words, *short)
        for words in (
            [image, "what?", "--save-cache", first],
            ["--load-cache", first, "and then?", "--save-cache", second],
            ["--load-cache", second, "else?"],
        )
    ]
    rows = [json.loads(out) for _, out, _ in told]
    assert all(set(row) >= FIELDS for row in rows)
    assert rows[0]["kv_bytes"] < rows[1]["kv_bytes"] < rows[2]["kv_bytes"]
    for words, says in (
        (["--load-cache", first, image, "what?"], "give the QUESTION alone"),
        (["--load-cache", first, "what?", "--keep-channels", ".5"], "keeps its own settings"),
        (["--load-cache", image, "what?"], "is not a stored cache"),
        (["--load-cache", first + ".gone", "what?"], "no readable file"),
    ):
        status, out, err = run("ask", *words)
        assert (status, out, err.count("\n")) == (2, "", 1) and says in err


@pytest.mark.parametrize(
    ("options", "budget"),
    [("--tokens fastv --keep-tokens 0.4", 0.25), ("--tokens fastv --smaller 8", 0.125)],
)
def test_compare_prints_every_method_at_one_budget(
    options: str, budget: float, image: str, run: Run
) -> None:
    words = ["compare", image, "what?", *options.split(), "--max-new-tokens", "3"]
    status, out, _ = run(*words, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    names = [row["method"] for row in rows]
    assert names[:5] == ["baseline", "fastv only", "think", "spark", "rotatek"]
    assert status == 0 and [row["nominal_kv"] for row in rows[1:]] == pytest.approx(
        [budget] * (len(rows) - 1), abs=2e-6
    )
    assert all(set(row) >= FIELDS | {"agreement", "first_divergence", "kl"} for row in rows)
    assert len(run(*words)[1].splitlines()) == 1 + len(rows)


@pytest.mark.parametrize("chosen", [{"keep_channels": 0.25}, {"smaller": 6}], ids=str)
def test_columns_of_equal_live_bytes(
    qwen: VisionLanguageModel, picture: Picture, chosen: dict
) -> None:
    prompt = qwen.prompt(make_request(picture(260, 220, seed=2), "what is the total?", 3))
    settings = Settings.of(**chosen)
    columns = matched_live(qwen, prompt, settings, recovery="mean")
    assert columns["rotatek"] == settings and columns["baseline"] == BASELINE
    assert columns["spark"].as_dict()["recovery"] == "mean"
    assert {"kivi", "turboquant", "think"} < columns.keys()
    budget, *held = measured(qwen, prompt, [settings, *columns.values()])
    for (name, one), size in zip(columns.items(), held, strict=True):
        assert one.is_baseline or size <= SLACK * budget, name
        assert not one.prunes_tokens or size >= 0.85 * budget, name


# A command, and what its refusal says: one sentence on stderr, and status 2.
REFUSED = [
    ("ask", "Give an IMAGE and a QUESTION"),
    ("ask --no-image what?", "The flag --no-image is gone: the API and the library ask texts"),
    ("ask {image} what? --csv x", "--csv is for the answers of a store. Add --store DIR"),
    ("ask --save-cache x --batch rows.jsonl", "Leave --batch out"),
    ("ask --save-cache x {image} what? --channels full", "no compressed cache"),
    ("ask {image} what? --batch nothing.jsonl", "Give either IMAGE"),
    ("ask --batch {image}", "picture.png cannot be read as text"),
    ("ask {image} what? --temperature 3", "temperature must be a number from 0 to 2"),
    ("ask {image} what? --keep-tokens 0", "keep_tokens must be a number above 0"),
    ("ask {image} what? --keep-channels 1.5", "keep_channels must be a number above 0"),
    ("ask {image} what? --channels palu", "channels must be one of"),
    ("ask {image} what? --option solver=qr", "solver must be one of"),
    ("ask {image} what? --option solver", "--option must be NAME=VALUE; got solver."),
    ("ask {image} what? --option top_k=few", "top_k must be a number; got few."),
    ("ask {image} what? --option colour=red", 'There is no setting "colour"'),
    ("ask {image} what? --option bits=2", "The setting bits is gone: choose `smaller`"),
    ("ask {image} what? --max-new-tokens 0", "max_new_tokens must be"),
    ("evaluate --part 3/2", "--part must be"),
    ("evaluate --tables none", "--tables must be"),
    ("evaluate --settings none.json", "The settings file cannot be read"),
    ("evaluate --splits none", "--splits must be"),
    ("evaluate --questions 0", "--questions must be"),
    ("evaluate --folder x", "The flag --folder is gone: name it as --suite."),
    ("ask --store x what? --memory 1GB", "The flag --memory is gone: a store's pages are asked"),
    ("ask a.png what? --bits 2", "The flag --bits is gone: choose `smaller`"),
    ("ask a.png what? --widths=adaptive", "The flag --widths is gone: choose `smaller`"),
    ("ask a.png what? --weighting none", "Write --weighting as --option weighting=VALUE."),
]


@pytest.mark.parametrize(("words", "says"), REFUSED)
def test_refusals_are_one_sentence_and_status_2(
    words: str, says: str, image: str, run: Run
) -> None:
    status, out, err = run(*words.format(image=image).split())
    assert (status, out, err.count("\n")) == (2, "", 1) and says in err


@pytest.mark.parametrize("word", ["ask", "compare"])
def test_help_has_every_option_of_every_method(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main([word, "--help"])
    assert exit_.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert len(set(re.findall(r"(?<= )--[a-z-]+", said.partition("positional")[0]))) <= 19
    for registry in (TOKENS, CHANNELS):
        for name, method in registry.items():
            assert f"{name}: {method.label}" in said
        for key in registry.options():
            assert f"--{key.replace('_', '-')} F" in said or f"{key} of " in said


def test_help_of_the_whole_needs_no_tensors() -> None:
    """Nor does a command that takes no settings: `--help` stays instant."""
    code = (
        "import sys\n"
        "from rotatek.cli.main import main\n"
        "for words in ([], ['info'], ['calibrate'], ['page']):\n"
        "    try: main([*words, '--help'])\n"
        "    except SystemExit as over: assert over.code == 0\n"
        "assert not {'torch', 'transformers', 'gradio', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"    {name}" in done.stdout for name in command.COMMANDS)


def test_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("rotatek.cli.page.find_spec", lambda name: None)
    assert run("page") == (2, "", "The web page is not installed. Install rotatek[app].\n")


def test_a_batch_names_its_bad_rows_and_goes_on(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(Path(image).read_bytes()[:500])
    row = {"image": image, "question": f"what{HALF}?{SEPARATORS}"}
    rows = [
        json.dumps(row), "{", json.dumps(row | {"image": str(damaged)}),
        json.dumps(row | {"question": 5}), json.dumps(row | {"image": 5}), json.dumps(row),
    ]  # fmt: skip
    batch = tmp_path / "rows.jsonl"
    batch.write_bytes("\r\n".join(rows).encode("utf-8-sig"))
    words = ["ask", "--batch", str(batch), "--max-new-tokens", "2"]
    assert command.main(words) == 2
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert ["answer" in one for one in found] == [True, False, False, False, False, True]
    assert found[0]["question"] == row["question"] and found[1]["line"] == 2
    assert all(f"Line {number} of the batch file rows.jsonl" in err for number in (2, 3, 4, 5))
    assert "Line 3 of the batch file rows.jsonl: The image is damaged" in err
    assert err.strip().splitlines()[-1].startswith("4 of the batch's questions")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_every_answer_can_be_printed(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = f"Café {HALF} \U0001f600 {SEPARATORS}"
    out = io.BytesIO()
    stdout = io.TextIOWrapper(out, encoding, "backslashreplace", write_through=True)  # as of `main`
    monkeypatch.setattr("sys.stdout", stdout)
    print_json({"answer": answer})
    assert json.loads(out.getvalue().decode(encoding)) == {"answer": answer}
    say(answer)
    assert "Caf" in (said := out.getvalue().decode(encoding)) and "\\ud83d" in said


def test_a_cache_that_cannot_be_saved_leaves_the_answer(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ask", image, "what?", "--max-new-tokens", "3"]
    assert command.main([*words, "--save-cache", str(tmp_path / "no folder" / "a.cache")]) == 2
    out, err = capsys.readouterr()
    assert command.main(words) == 0
    assert capsys.readouterr().out == out
    assert err.count("\n") == 1 and "cannot be written" in err


# -- Ctrl-C ends a command, also where cleaning up waits for a lock without an owner ------------

STUCK = """
import signal, threading
from rotatek.cli import main as cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
cli.CLEANUP_S = {seconds}
cli.end_by_interrupt()
try:
    print("waiting", flush=True)
    threading.Event().wait()
finally:
    print("cleaning up", flush=True)
    while True:
        threading.Event().wait(0.05)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("seconds", "again"), [(0.2, False), (600, True)])
def test_cleaning_up_may_take_so_long_or_until_a_second_interrupt(
    seconds: float, again: bool
) -> None:
    words = [sys.executable, "-c", STUCK.format(seconds=seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert present(process.stdout).readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            assert present(process.stdout).readline() == "cleaning up\n"
            if again:
                process.send_signal(signal.SIGINT)
            assert process.wait(30) == command.INTERRUPTED
        finally:
            process.kill()
