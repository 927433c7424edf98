"""Every figure that a document's prose holds, by name, read from `assets/results`.

In Markdown a number is followed by its name, which no reader sees: `1.54<!--= solver ms-->`. `make
results` writes the numbers (`written`); a name that the data do not have is an error. Names follow
the data: one function a file, one loop a measurement.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parent.parent / "assets" / "results"
MARK: Final = re.compile(r"([-+]?[\d.,/]*\d(?:e-?\d+)?)?(<!--= ([^>]+?)-->)")
MODELS: Final = {"qwen2.5-vl-7b": "Qwen", "llava-next-8b": "LLaVA"}
Named = Iterator[tuple[str, str]]


def written(text: str) -> str:
    """A document with its marked numbers as the data have them.

    Args:
        text: Markdown.

    Raises:
        KeyError: for a name that the data do not have.
    """
    return MARK.sub(lambda found: figures()[found[3].strip()] + found[2], text)


@lru_cache
def figures() -> Mapping[str, str]:
    """Every figure by its name."""
    made: dict[str, str] = {}
    parts = (attention, narrow, baselines, model_speed, checks, full_size, reading, asked)
    for part in (*parts, gpu_check, bits_prefill, serving, layers, again):
        for name, figure in part():
            assert made.setdefault(name, figure) == figure, name
    return made


def share(value: float, digits: int = 3) -> str:
    """A share of one without its nought: .727; 1 and 0 as they are."""
    return f"{value:.{digits}f}".removeprefix("0") if value % 1 else f"{value:.0f}"


def times(value: float) -> str:
    """A ratio: 1.54, .83; 16 from ten on."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2f}".removeprefix("0")


def measured(value: float) -> str:
    """A quantity with a unit, to three digits: 5.05, 47.2, 302, 1,538."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def data(name: str) -> dict[str, Any]:
    """A committed file of results, or nothing."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def rows(name: str, part: str) -> list[dict[str, Any]]:
    """The rows of one measurement of a file, or none."""
    return list(data(name).get(part, {}).get("rows", []))


def place(shape: Mapping[str, Any]) -> str:
    """A shape in short: 32/8 B8 N16384."""
    return f"{shape['Hq']}/{shape['Hkv']} B{shape['B']} N{shape['N']}"


def extremes(name: str, values: Sequence[float], form: Any = times) -> Named:
    """The least and the most of some figures."""
    if values:
        yield f"{name}, least", form(min(values))
        yield f"{name}, most", form(max(values))


def attention() -> Named:
    """One layer's attention at k = 32, beside dense caches and the paper's kernels."""
    found = [row for row in rows("kernels", "attention") if row["shape"]["k"] == 32]
    for row in found:
        here = f"attention {place(row['shape'])}"
        yield f"{here} us", measured(row["times"]["ours"]["us"])
        yield f"{here} over dense", times(row["over_best_dense"])
    yield from extremes("attention over the paper's", [row["over_paper"] for row in found])


def narrow() -> Named:
    """Caches of 8 bits and rotated Values, and channels of a few bits."""
    for row in rows("kernels", "quant"):
        here, us = f"quant {place(row['shape'])}", row["times"]
        for pack, gain in row["over_best_dense"].items():
            yield f"{here} {pack} over dense", times(gain)
            yield f"{here} {pack} us", measured(us[pack]["us"])
    for row in rows("kernels", "planes"):
        yield f"planes {place(row['shape'])} over dense", times(row["over_best_dense"]["24"])
    slower = [row["over_fp8_dense"]["bf16 k=32"] < 1 for row in rows("kernels", "quant")]
    yield "quant fp8 dense faster", str(sum(slower))
    yield "quant shapes", str(len(slower))
    both = [row["over_fp8_dense"]["fp8 K, fp8 V"] for row in rows("kernels", "quant")]
    yield from extremes("quant fp8 over fp8 dense", both)
    errors = [row["relative_output_error_of_storage"]["dense fp8"]
              for row in rows("kernels", "quant")]  # fmt: skip
    yield from extremes("quant fp8 dense error, percent", [100 * e for e in errors], measured)


def baselines() -> Named:
    """ThinK and SparK with rebuilt Keys, over ours."""
    for arm in ("ThinK, rebuilt", "SparK, rebuilt", "ThinK, gathered query"):
        gains = [row["times"][arm]["us"] / row["times"]["ours"]["us"]
                 for row in rows("kernels", "baselines")]  # fmt: skip
        yield from extremes(f"over {arm}", gains)


def model_speed() -> Named:
    """Whole steps, prefills, equal memory, and the solver."""
    for row in rows("kernels", "step"):
        here = f"step {row['model']} B{row['B']} N{row['N']}"
        yield f"{here} of roofline", share(row["of_roofline"]["k=32"], 2)
        for other, ms in row.get("transformers_ms", {}).items():
            yield f"{here} {other}", times(ms / row["ms"]["k=32"])
    for row in rows("kernels", "capacity"):
        yield f"capacity {row['model']}", times(row["gain"])
        yield f"capacity {row['model']} 24 bytes", times(row["gain_digits"])
    found = rows("kernels", "prefill")
    for row in found:
        for kind in ("trained", "noise"):
            percent = 100 * row["share"][f"{kind}: together"]
            yield f"prefill {row['model']} {kind}, percent", f"{percent:.1f}".removeprefix("0")
    slow = [100 * row["share"][f"{kind}: a layer at a time"]
            for row in found for kind in ("trained", "noise")]  # fmt: skip
    yield from extremes("prefill a layer at a time, percent", slow, lambda value: f"{value:.0f}")
    solver = data("kernels").get("solver")
    if solver:
        ours = solver["ms"]["ours k=32"]
        yield "solver ms", share(ours, 2)
        yield "solver over CuPy", times(solver["ms"]["CuPy batched eigh"] / ours)
        yield "printed ms", share(solver["ms"]["paper's loop k=32"], 2)
        yield "printed off", share(solver["quality"]["paper's loop k=32"]["orthonormality"], 2)


def checks() -> Named:
    """What the correctness check of the kernels counted."""
    found = data("kernels-check")
    yield "check cases", f"{found['cases']:,}"
    yield "check passed", f"{found['cases'] - found['failed']:,}"
    solver = found["solver"]
    yield "check orthonormality", f"{solver['orthonormality']:.1e}".replace("e-0", "e-")
    yield "check spectra", str(solver["spectra"])
    yield "check spectra passed", str(solver["spectra"] - solver["failed"])


def gpu_check() -> Named:
    """Head widths, Gemma-3-4B and `model.generate` on a GPU."""
    found = data("gpu-check")
    cases = found["kernels"]["cases"]
    yield "widths cases", str(cases)
    yield "widths passed", str(cases - found["kernels"]["failed"])
    for label, row in found["gemma"]["rows"].items():
        yield f"gemma {label} MiB", measured(row["kv_mib"])
        if row["graph_ms"]:
            yield f"gemma {label} ms", f"{row['graph_ms']:.2f}"
    greedy = found["generate"]["rows"]["1225 greedy"]
    yield "generate ms", f"{greedy['graph_ms']:.2f}"
    yield "generate ms, capture counted", f"{greedy['graph_mean_ms']:.2f}"
    yield "generate ms, launched", measured(greedy["without_ms"])
    yield "generate ms, transformers", measured(greedy["dynamic_cache_ms"])
    yield "generate own step ms", f"{found['generate']['rows']['1225 own step']:.2f}"
    yield "generate capture s", share(64 * (greedy["graph_mean_ms"] - greedy["graph_ms"]) / 1e3, 2)


def bits_prefill() -> Named:
    """What bits add to a prefill."""
    found = data("bits-prefill")
    for name in ("Llama3-8B", "Qwen2.5-VL-7B"):
        for arm, added in found[name]["added"].items():
            yield f"prefill {name} {arm}, percent", f"{100 * added:.0f}"
        yield f"prefill {name} ms", measured(found[name]["ms"]["prefill"])
        yield f"solve {name} ms", measured(found[name]["parts"]["bits 0.75"]["axes"])
        yield (
            f"solve {name} at once, ms",
            measured(found[name]["solver"]["one pass, 16 iterations"]["ms"]),
        )
        yield f"launches {name}", f"{found[name]['traffic']['bits 0.75']['launches']:,}"


def layers() -> Named:
    """A picture's tower and prompt on a GPU: in one pass each, and by whose attention."""
    found = data("layers")
    for name, row in found["passes"].items():
        for way, ms in row.items():
            yield f"{name}, {way} ms", measured(ms)
    for kind, row in found["attention"].items():
        for name, ms in row.items():
            yield f"{name} with {kind} ms", measured(ms)


def again() -> Named:
    """A second whole run of the first model's evaluation."""
    found = data("again")
    yield "again answers", f"{found['answers']:,}"
    yield "again s", f"{found['seconds']}"
    for kind in ("short", "long"):
        row = found[kind]
        yield f"again {kind} same, percent", f"{100 * row['same']:.0f}"
        yield f"again {kind} mean", f"{row['mean']:+.2f}".replace("0.", ".")
        yield f"again {kind} within a point, percent", f"{100 * row['within a point']:.0f}"


def serving() -> Named:
    """64 clients on a GPU."""
    found = data("serving")
    for name, row in found["rows"].items():
        yield f"serving {name} together", measured(row["tokens_s"])
        yield f"serving {name} in turns", measured(row["turns_tokens_s"])
        yield f"serving {name} rows", str(row["rows"])
        yield f"serving {name} captures", str(row["captures"])
        yield f"serving {name} ms", measured(row["median_ms"])
        yield f"serving {name} p99 ms", measured(row["p99_ms"])
        yield f"serving {name} MB a place", measured(row["mb_client"])
        for what in ("seconds", "pixels_ms", "tower_ms", "first_token_ms"):
            yield f"serving {name} {what}", measured(row[what])
    for bar, (value, *_) in found["bars"].items():
        yield f"serving {bar}", times(value)
    a_client = found["rows"]["k=d/4"]["seconds"] / found["clients"]
    yield "serving s a client", share(a_client, 2)
    yield "serving clients a minute", f"{60 / a_client:.0f}"
    for length, both in data("serving-cores").items():
        for setting in ("dense", "RotateK k=d/4"):
            for name, value in both[setting].items():
                yield f"cores {length}, {setting} {name}", times(value)
    usual, half = (data(name)["as they end"] for name in ("serving-cores", "serving-cores-bf16"))
    for setting in ("dense", "RotateK k=d/4"):
        gained = half[setting]["together"] / usual[setting]["turns"]
        yield f"cores bf16, {setting} answers", measured(half[setting]["together"])
        yield f"cores bf16, {setting} over float32 in turns", times(gained)
    door = data("load")
    for what, (median, last) in (("first", door["first_s"]), ("answer", door["whole_s"])):
        yield f"load {what} s", measured(median)
        yield f"load {what} p99 s", measured(last)
    yield "load requests", f"{sum(door['told'].values()):,}"
    yield "load refused", f"{door['told'].get('refused: full', 0):,}"
    yield "load wrong", str(door["wrong"])
    yield "load MB a request", share(door["megabytes_a_request"], 4)
    yield "load GB", measured(door["megabytes"] / 1e3)


def full_size() -> Named:
    """Models of real shapes with random weights on a GPU."""
    for family in data("full_size").get("families", []):
        name = MODELS.get(family["model"].partition(" ")[0], family["model"].partition(" ")[0])
        yield f"{name} visual tokens", f"{family['visual_tokens']:,}"
        for label, row in family["rows"].items():
            for key, value in row.items():
                if isinstance(value, float) and key.endswith(("_ms", "_mib")):
                    yield f"{name} {label} {key}", measured(value)
        yield from _question(name, family["rows"])


def _question(name: str, found: Mapping[str, Mapping[str, Any]]) -> Named:
    """GPU-seconds of a question of two columns, 64 tokens each: tower, prefill, every step."""
    whole, ours = found["full width, our cache"], found["RotateK k=32"]
    shown = (ours["encode_ms"] + ours["prefill_ms"]) / 1e3
    for kind in ("decode_ms", "graph_ms"):
        steps = 64 * (whole[kind] + ours[kind]) / 1e3
        yield f"{name} question s, {kind.removesuffix('_ms')}", f"{shown + steps:.1f}"
    held = sum(row["kv_mib"] for row in (whole, ours))
    extra = max(max(row["prefill_extra_mib"], row["encode_extra_mib"]) for row in (whole, ours))
    yield f"{name} beside GB", f"{(held + extra) * 2**20 / 1e9:.1f}".removeprefix("0")


def reading() -> Named:
    """How well the embedded models read, by `python -m pocket.evaluation`."""
    for name in ("pocket", "pocket-llava"):
        found = data(name)
        yield f"{name} reading questions", f"{found['questions']:,}"
        yield f"{name} auroc", share(found["calibration"]["auroc"], 2)
        for part, one in found.items():
            if isinstance(one, dict) and "all" in one:
                yield f"{name} {part}", share(one["all"]["exact"], 2)
                for kind, own in one["kind"].items():
                    yield f"{name} {part} {kind}", share(own["exact"], 2)
                    right = round(own["exact"] * own["n"])
                    yield f"{name} {part} {kind} right", str(right)
                    yield f"{name} {part} {kind} wrong", str(own["n"] - right)
                    yield f"{name} {part} {kind} of", str(own["n"])


def asked() -> Named:
    """The evaluations: how many questions, and what every row of a table has."""
    for path in sorted(RESULTS.glob("*.json")):
        built = data(path.stem)
        if "tables" not in built or "suite" not in built:
            continue
        yield f"{path.stem} questions", f"{built['suite']['questions']:,}"
        yield f"{path.stem} pictures", f"{built['suite']['documents']:,}"
        for table in built["tables"]:
            for row in table["rows"]:
                here = f"{path.stem} {table['name']} {row['label']}"
                yield f"{here}: score", f"{100 * row['score']:.1f}"
                if "exact_match" in row:
                    yield f"{here}: right", f"{round(row['exact_match'] * table['questions'])}"
                yield f"{here}: bytes", share(row["actual_kv"])
