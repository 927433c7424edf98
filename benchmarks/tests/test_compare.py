"""Two result files beside each other: regressions, improvements, noise, and what is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.kernels import compare

SHAPE = {"Hq": 32, "Hkv": 8, "B": 32, "N": 2880, "M": 64, "k": 32}


def timing(us: float, spread: float = 0.004) -> dict[str, float]:
    return {"us": us, "low_us": us * (1 - spread / 2), "high_us": us * (1 + spread / 2)}


def results(ours: float = 70.0, flash: float = 90.0, spread: float = 0.004) -> dict[str, Any]:
    row = {"shape": SHAPE, "best_dense": "flash", "over_best_dense": 1.3}
    row["times"] = {"ours": timing(ours, spread), "flash": timing(flash, spread)}
    step = {"model": "Llama3-8B", "B": 1, "N": 2880, "overlap": True, "gain": 1.01}
    step["spread_us"] = {"k=32": timing(4386.0), "dense": timing(4411.0)}
    solver = {"matrices": 256, "ms": {"ours k=32": 0.16}, "spread_us": {"ours k=32": timing(160.0)}}
    return {
        "hardware": "NVIDIA H200", "torch": "2.11.0",
        "attention": {"read_bytes_per_s": 4.5e12, "rows": [row], "refused": []},
        "step": {"rows": [step]}, "solver": solver,
    }  # fmt: skip


def outcome(folder: Path, old: Any, new: Any) -> tuple[str, int]:
    paths = [folder / "old.json", folder / "new.json"]
    for path, found in zip(paths, (old, new), strict=True):
        path.write_text(found if isinstance(found, str) else json.dumps(found))
    return compare.run(paths)


@pytest.mark.parametrize(
    "us, spread, verdict, status",
    [
        (70.0, 0.004, "", 0),
        (71.3, 0.004, "", 0),  # 1.9 %
        (73.0, 0.06, "", 0),  # 4.3 %, in a spread of 6 %
        (73.0, 0.004, "slower", 1),
        (77.0, 0.06, "slower", 1),
        (60.0, 0.004, "faster", 0),
    ],
)
def test_a_change_counts_beyond_the_spread_and_two_per_cent(
    us: float, spread: float, verdict: str, status: int, tmp_path: Path
) -> None:
    text, code = outcome(tmp_path, results(), results(us, spread=spread))
    assert code == status
    line = f"| attention | Hq=32 Hkv=8 B=32 N=2880 M=64 k=32 | ours | 70.00 | {us:.2f} "
    assert (line in text) == bool(verdict)
    assert verdict in text
    assert "5 times" in text


def test_the_older_files_spread_counts_too(tmp_path: Path) -> None:
    assert outcome(tmp_path, results(spread=0.1), results(75.0))[1] == 0


def test_a_slower_rival_is_shown_and_is_no_regression(tmp_path: Path) -> None:
    text, code = outcome(tmp_path, results(), results(flash=120.0))
    assert code == 0
    assert "| flash | 90.00 | 120.00 | 1.333 | control |" in text
    assert "0 slower, 0 faster, 1 of a rival" in text


def test_a_benchmark_of_one_file_alone_is_left_out(tmp_path: Path) -> None:
    new = results()
    del new["step"]
    text, code = outcome(tmp_path, results(), new)
    assert code == 0 and text.startswith("3 times")


def without_arm(found: dict[str, Any]) -> None:
    del found["attention"]["rows"][0]["times"]["flash"]


def without_spread(found: dict[str, Any]) -> None:
    del found["solver"]["spread_us"]["ours k=32"]["low_us"]


def with_nan(found: dict[str, Any]) -> None:
    found["attention"]["rows"][0]["times"]["ours"]["us"] = float("nan")


def twice(found: dict[str, Any]) -> None:
    found["attention"]["rows"] *= 2


def elsewhere(found: dict[str, Any]) -> None:
    found["hardware"] = "NVIDIA H100"


def of_nothing(found: dict[str, Any]) -> None:
    for name in ("attention", "step", "solver"):
        del found[name]


@pytest.mark.parametrize(
    "change, sentence",
    [
        (without_arm, "One file lacks attention, Hq=32 Hkv=8 B=32 N=2880 M=64 k=32, flash."),
        (without_spread, "the time of solver, matrices=256, ours k=32 stands there twice, or is"),
        (with_nan, "k=32, ours stands there twice, or is damaged."),
        (twice, "stands there twice, or is damaged."),
        (elsewhere, "different hardware: NVIDIA H200 and NVIDIA H100."),
        (of_nothing, "no benchmark with spreads in common."),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    change: Any, sentence: str, tmp_path: Path
) -> None:
    new = copy.deepcopy(results())
    change(new)
    text, code = outcome(tmp_path, results(), new)
    assert code == 2
    assert sentence in text and "\n" not in text


@pytest.mark.parametrize(
    "found, sentence",
    [("{", "is damaged: it is not JSON."), ("[]", "names no hardware."), ("{}", "no hardware.")],
)
def test_foreign_files_are_refused(found: str, sentence: str, tmp_path: Path) -> None:
    text, code = outcome(tmp_path, results(), found)
    assert code == 2 and sentence in text


def test_missing_files_are_refused(tmp_path: Path) -> None:
    assert compare.run([tmp_path / "a", tmp_path / "b"])[0].endswith("a cannot be read.")
    assert compare.run([tmp_path]) == ("compare needs two files: OLD NEW.", 2)


def test_the_committed_results_equal_themselves(root: Path) -> None:
    path = root / "assets" / "results" / "kernels.json"
    text, code = compare.run([path, path])
    assert code == 0 and "0 slower, 0 faster" in text


def test_the_command_prints_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome(tmp_path, results(), results(99.0))
    assert main(["compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 1
    assert "| slower |" in capsys.readouterr().out
