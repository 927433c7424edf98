"""The command, its files and tables; and measurements that run on a CPU with tiny models."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import catalogue, harness, layers_gpu
from benchmarks.__main__ import ALL, main
from benchmarks.harness import SECTION, Benchmark, found_at, tables
from benchmarks.kernels import check

TIME = {"us": 4.25, "low_us": 4.0, "high_us": 4.5}


def growing(rounds: int = 2) -> Any:
    """A report that grows."""
    report: dict[str, Any] = {"rows": []}
    for number in range(rounds):
        report["rows"].append({"shape": {"B": number, "r": None}, "times": {"ours": TIME}})
        yield report


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """One of this module, in place of `latency`."""
    one = Benchmark("tests.test_harness:growing", "?", "", ("rounds",), SECTION, gpu=False)
    monkeypatch.setitem(catalogue.BENCHMARKS, "latency", one)
    monkeypatch.setattr(harness, "found_at", lambda place: growing)
    return one


def test_a_section_is_written_beside_others_and_printed(
    benchmark: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"step": {"rows": []}}))
    assert main(["latency", "--rounds", "3", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert list(found) == ["step", "hardware", "torch", "latency"]
    assert [row["shape"]["B"] for row in found["latency"]["rows"]] == [0, 1, 2]
    assert "| B=2 | 4.25 |" in capsys.readouterr().out
    assert main(["table", str(path)]) == 0
    assert "| B=1 | 4.25 |" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["check", "attention", "layers", "all"])
def test_without_a_gpu_a_sentence_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{name} needs a GPU") and ("--tiny" in said) == (name == "layers")


def test_a_name_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match="no 'k=31'; choose from: k=48; "):
        harness.chosen(["k=31"], ["k=48", "k=32"])
    assert harness.chosen(None, ["a", "b"]) == ["a", "b"] != harness.chosen(["b"], ["a", "b"])


def test_every_benchmark_is_there_and_its_options_are_known(root: Path) -> None:
    readme = (root / "benchmarks" / "README.md").read_text()
    for name, one in catalogue.BENCHMARKS.items():
        takes = inspect.signature(found_at(one.run)).parameters
        named = {*one.options, *one.words}
        assert named <= set(takes) and named <= set(catalogue.OPTIONS)
        assert f"| `{name}` |" in readme and one.answers in readme and one.takes in readme
    every = catalogue.BENCHMARKS.values()
    used = {option for one in every for option in (*one.options, *one.words)}
    assert used == set(catalogue.OPTIONS)
    committed = json.loads((root / "assets" / "results" / "kernels.json").read_text())
    assert committed.keys() - {"hardware", "torch"} <= set(ALL)


def test_committed_reports_of_every_shape_have_tables(root: Path) -> None:
    """Rows in lists, rows by name, figures alone, and all of these within one another."""
    found = {
        name: "\n".join(tables(json.loads((root / "assets/results" / f"{name}.json").read_text())))
        for name in ("kernels", "efficiency", "full_size", "bits-prefill", "stored", "layers")
    }
    assert "| Hq=32 Hkv=8 B=1 N=2880 M=64 k=32 d=128 |" in found["kernels"]
    assert "low_us" not in found["kernels"]
    turned = "| over_best_dense: fp8 K, fp8 V | 2.531 | 2.89 | 2.208 | 2.53 |"
    assert turned in found["kernels"]  # a shape a column, where arms and ratios are many
    assert "| RotateK k=32 fp8 |" in found["full_size"]
    assert "families, llava-next-8b (random), rows" in found["full_size"]
    assert "Llama3-8B, parts\n\n|  | all | looks |" in found["bits-prefill"]
    assert "passes\n\n|  | one pass | plain |" in found["layers"]
    assert "2 bits, 8-bit text" in found["stored"] and "decode_ms" in found["efficiency"]


@pytest.mark.parametrize("name", ["layers", "bits-prefill", "generate"])
def test_a_measurement_for_a_gpu_runs_with_tiny_models(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """So that no minute of a GPU goes to a slip of the pen; the fields are the committed ones."""
    monkeypatch.setattr(layers_gpu, "PROMPTS", (12, 13))
    path = tmp_path / "report.json"
    few = {"bits-prefill": ["--rounds", "1"], "generate": ["--tokens", "4", "--short"]}
    assert main([name, "--tiny", *few.get(name, []), "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found.keys() >= {"device", "torch"}
    if name == "generate":
        assert all(row["equal"] for row in found["rows"].values() if row is not None)
        return
    committed = json.loads((root / "assets" / "results" / f"{name}.json").read_text())
    if name == "bits-prefill":
        found, committed = found["tiny"], committed["Llama3-8B"]
    assert found.keys() == committed.keys()
    for part in committed:
        if isinstance(committed[part], dict):
            assert found[part].keys() == committed[part].keys()


@pytest.mark.slow
def test_the_check_of_a_new_gpu_runs_here_with_tiny_models(tmp_path: Path, root: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "gpu-check", "--tiny", "--json", str(report)],
        cwd=root,
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    found = json.loads(report.read_text())
    committed = json.loads((root / "assets" / "results" / "gpu-check.json").read_text())
    assert found.keys() == committed.keys()
    assert found["kernels"]["cases"] > found["kernels"]["failed"] == 0


def test_the_check_of_all_kernels_says_what_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def found(device: str, cases: list[Any], workers: int) -> dict[str, Any]:
        seen.extend(cases)
        failures = [{"case": {"pack": "flat keys"}, "error": 1.0, "plain": 0.1}]
        return {"cases": 2, "failed": 1, "worst": {}, "failures": failures, "solver": {"failed": 1}}

    monkeypatch.setattr(check, "run_parallel", found)
    path = tmp_path / "check.json"
    words = ["--device", "cpu", "--every", "50", "--packs", "flat keys", "--json", str(path)]
    assert main(["check", *words]) == 1
    assert {case.pack for case in seen} == {"flat keys"} and json.loads(path.read_text())["cases"]
    said = capsys.readouterr().out
    assert (
        "WRONG: attention, {'case': {'pack': 'flat keys'}" in said and "WRONG: the solver" in said
    )
