"""The command line: what it prints, where, and how it refuses."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rotatek.cli import main as command
from rotatek.cli.compare import columns
from rotatek.errors import SettingError, UserError
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

FIELDS = {
    "answer", "new_tokens", "visual_tokens", "visual_tokens_kept", "nominal_kv", "kv_bytes",
    "kv_bytes_full", "prefill_ms", "decode_ms_per_token", "attention",
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model in place of a loaded one; everything else is the real command."""
    from rotatek import models

    monkeypatch.setattr(models, "load", lambda model, device=None, four_bit=False: tiny_qwen())


@pytest.fixture
def image(picture: Picture, tmp_path: Path) -> str:
    path = tmp_path / "picture.png"
    picture(400, 300).save(path)
    return str(path)


def test_ask_prints_the_answer_alone(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ask", image, "what?", "--max-new-tokens", "4"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err == ""


def test_a_question_without_a_picture(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ask", "--no-image", "what?", "--max-new-tokens", "4", "--json"]
    assert command.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["visual_tokens"] == 0 and told["kv_bytes"] == told["kv_bytes_full"] > 0
    assert command.main(["ask", "--no-image", image, "what?"]) == 2
    assert "give the QUESTION alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--no-image what? --smaller 4", "--smaller has no effect without an image. Leave it out."),
        ("{image} what? --csv x", "--csv is for the answers of a store. Add --store DIR"),
        ("--store x what? --place @", "--place has no effect: its pictures were read before."),
        ("--load-cache x what? --place @", "--place has no effect: its pictures were read"),
    ],
)
def test_a_flag_that_cannot_act_is_refused(
    words: str, said: str, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["ask", *words.format(image=image).split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(said) and err.count("\n") == 1


def test_a_picture_stands_first_unless_told(
    image: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rotatek.inputs import request
    from rotatek.inputs.messages import PICTURE

    made: list[request.Request] = []
    real = request.make_request

    def noted(*given: Any, **more: Any) -> request.Request:
        made.append(real(*given, **more))
        return made[-1]

    monkeypatch.setattr(request, "make_request", noted)
    asked = ["ask", image, "In {} what is it?", "--max-new-tokens", "2"]
    for more in ([], ["--place", "{}"]):
        assert command.main([*asked, *more]) == 0
    assert made[0].messages[0].parts == (PICTURE, "In {} what is it?")
    assert made[1].messages[0].parts == ("In ", PICTURE, " what is it?")
    capsys.readouterr()
    assert command.main([*asked, "--place", "<image>"]) != 0
    assert "Write '<image>' once" in capsys.readouterr().err


def test_ask_json_has_every_field(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tokens", "fastv", "--keep-tokens", "0.4", "--keep-channels", "0.25"]
    assert command.main(["ask", image, "what?", "--json", "--max-new-tokens", "4", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) >= FIELDS
    assert report["nominal_kv"] == pytest.approx(0.25)
    assert report["visual_tokens_kept"] == round(0.4 * report["visual_tokens"])
    assert report["kv_bytes"] < report["kv_bytes_full"]
    assert report["attention"] in ("reference", "triton")


def test_ask_draws_with_a_seed(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A seed that was drawn is reported; the same seed gives the same answer."""

    def ask(*more: str) -> dict[str, Any]:
        assert command.main(["ask", image, "what?", "--json", "--max-new-tokens", "6", *more]) == 0
        return json.loads(capsys.readouterr().out)

    first = ask("--temperature", "1.5", "--option", "top_p=0.95")
    own = first["sampling"]
    assert own.keys() == {"temperature", "top_p", "seed"}
    given = [word for name, value in own.items() for word in ("--option", f"{name}={value}")]
    given[:2] = ["--temperature", str(own["temperature"])]
    given[-2:] = ["--seed", str(own["seed"])]
    assert ask(*given)["answer"] == first["answer"]
    assert ask()["sampling"] == {} == ask("--seed", "3")["sampling"]
    assert command.main(["ask", image, "what?", "--temperature", "3"]) == 2
    assert "temperature must be a number from 0 to 2" in capsys.readouterr().err


def test_batch_keeps_order_and_survives_a_bad_row(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"image": image, "question": "first?"},
        {"image": str(tmp_path / "missing.png"), "question": "second?"},
        {"image": image, "question": "third?"},
    ]
    batch = tmp_path / "batch.jsonl"
    batch.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert command.main(["ask", "--batch", str(batch), "--max-new-tokens", "3"]) == 2
    out, err = capsys.readouterr()
    reports = [json.loads(line) for line in out.splitlines()]
    assert [r["question"] for r in reports] == ["first?", "second?", "third?"]
    assert "error" in reports[1] and "answer" in reports[2]
    assert "question" in err  # the bar
    assert err.strip().splitlines()[-1].startswith("1 of the batch's questions")


def test_a_stored_cache_answers_further_questions(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    short = ["--max-new-tokens", "3", "--json"]
    assert command.main(["ask", image, "what?", "--save-cache", first, *short]) == 0
    more = ["--load-cache", first, "and then?", "--save-cache", second]
    assert command.main(["ask", *more, *short]) == 0
    assert command.main(["ask", "--load-cache", second, "else?", *short]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 3 and all(set(row) >= FIELDS for row in rows)
    assert rows[0]["kv_bytes"] < rows[1]["kv_bytes"] < rows[2]["kv_bytes"]
    for words, says in (
        (["--load-cache", first, image, "what?"], "give the QUESTION alone"),
        (["--load-cache", first, "what?", "--keep-channels", ".5"], "keeps its own settings"),
        (["--load-cache", image, "what?"], "is not a stored cache"),
        (["--load-cache", first + ".gone", "what?"], "no readable file"),
        (["--save-cache", first, "--batch", "rows.jsonl"], "Leave --batch out"),
        (["--save-cache", first, image, "what?", "--channels", "full"], "no compressed cache"),
    ):
        assert command.main(["ask", *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and says in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("calibrate --out x --jobs 2", "The flag --jobs is gone: one process reads all prompts."),
        ("ask a.png what? --bits 2", "The flag --bits is gone: choose `smaller`"),
        ("ask a.png what? --widths=adaptive", "The flag --widths is gone: choose `smaller`"),
        ("ask --video a.mp4 what?", "The flag --video is gone: give pictures"),
        ("ask a.png what? --weighting none", "Write --weighting as --option weighting=VALUE."),
        ("ask a.png what? --top-k 4", "Write --top-k as --option top_k=VALUE."),
    ],
)
def test_a_flag_that_is_gone_names_the_other_way(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err


def test_compare_prints_every_method_at_one_budget(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tokens", "fastv", "--keep-tokens", "0.4", "--max-new-tokens", "3"]
    assert command.main(["compare", image, "what?", "--json", *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["method"] for r in rows] == ["baseline", "fastv only", "think", "spark", "rotatek"]
    assert {r["nominal_kv"] for r in rows[1:]} == {0.25}
    assert all(set(row) >= FIELDS | {"agreement", "first_divergence", "kl"} for row in rows)
    assert command.main(["compare", image, "what?", *options]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep-tokens", "0"], "keep_tokens must be a number above 0"),
        (["--keep-channels", "1.5"], "keep_channels must be a number above 0"),
        (["--channels", "palu"], "channels must be one of"),
        (["--tokens", "prumerge"], "tokens must be one of"),
        (["--option", "solver=qr"], "solver must be one of"),
        (["--option", "solver"], "--option must be NAME=VALUE; got solver."),
        (["--option", "top_k=few"], "top_k must be a number; got few."),
        (["--option", "colour=red"], 'There is no setting "colour"'),
        (["--option", "bits=2"], "The setting bits is gone: choose `smaller`"),
        (["--max-new-tokens", "0"], "max_new_tokens must be"),
        (["--batch", "nothing.jsonl"], "Give either IMAGE"),
    ],
)
def test_refusals_are_one_sentence_and_status_2(
    image: str, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["ask", image, "what?", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("line", ["not json", '{"image": "x.png"}', "[]", '{"question": "?"}', "7"])
def test_a_broken_batch_file_names_the_line(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = tmp_path / "batch.jsonl"
    batch.write_text(line + "\n")
    assert command.main(["ask", "--batch", str(batch)]) == 2
    assert "Line 1 of the batch file" in capsys.readouterr().err


def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["ask", "--max-new-tokens", "much"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert command.main(["ask", "a.png", "what?", "--keep-tokens", "much"]) == 2
    wanted = "keep_tokens must be a number above 0 and at most 1; got much.\n"
    assert capsys.readouterr().err == wanted


def test_missing_arguments_say_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ask"]) == 2
    assert "Give an IMAGE and a QUESTION" in capsys.readouterr().err


OPTIONS: list[dict[str, Any]] = [
    {},
    {"tokens": "fastv", "keep_tokens": 0.4},
    {"tokens": "visionzip", "keep_tokens": 0.3, "channels": "spark", "recovery": "mean"},
    {"tokens": "fastv", "fastv_layer": 3, "keep_tokens": 0.5, "channels": "full"},
    {"tokens": "fastv", "keep_tokens": 0.4, "smaller": 8},
    {"channels": "think", "keep_channels": 0.9},
    {"keep_channels": 0.5, "recovery": "mean"},
    {"channels": "full", "tokens": "visionzip", "keep_tokens": 0.07},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_comparison_keeps_one_budget(options: dict[str, Any]) -> None:
    """Every column but the uncompressed one, whatever the chosen settings are."""
    own = {key: value for key, value in options.items() if key != "recovery"}
    chosen = Settings.of(**(options if options.get("channels") == "spark" else own))
    made = columns(options)
    assert [made[name].is_baseline for name in made] == [True] + [False] * (len(made) - 1)
    for name in list(made)[1:]:
        assert made[name].nominal_kv == pytest.approx(chosen.nominal_kv, abs=2e-6), name
    reducing = {name for name, method in CHANNELS.items() if method.drops_channels}
    assert reducing <= set(made)
    assert chosen in made.values() or chosen.channels.stores_everything


def test_an_option_of_another_method_goes_to_its_column() -> None:
    made = columns({"recovery": "mean"})
    assert made["spark"].as_dict()["recovery"] == "mean"
    assert "recovery" not in made["rotatek"].as_dict()


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to compare"):
        columns({"channels": "full"})
    with pytest.raises(SettingError, match="recovery must be one of"):
        columns({"recovery": "median"})


@pytest.mark.parametrize("word", ["ask", "compare"])
def test_help_has_every_option_of_every_method(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main([word, "--help"])
    assert exit_.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert len(set(re.findall(r"(?<= )--[a-z-]+", said.partition("positional")[0]))) <= 21
    for registry in (TOKENS, CHANNELS):
        for name, method in registry.items():
            assert f"{name}: {method.label}" in said
        for key, owned in registry.options().items():
            assert f"--{key.replace('_', '-')} F" in said or f"{key} of " in said
            for _, option in owned:
                assert all(value in said for value in option.values)


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


def test_the_page_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "rotatek.cli.page.find_spec", lambda name: None if name == "gradio" else find(name)
    )
    assert command.main(["page"]) == 2
    assert capsys.readouterr().err == "The web page is not installed. Install rotatek[app].\n"
