"""The goals of the kernels with a measured column, as Markdown, from the benchmarks' JSON."""

from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]


def table(found: Row) -> str:
    """Markdown of every benchmark present in `found`."""
    parts = [f"Hardware: {found.get('hardware', '?')}; torch {found.get('torch', '?')}."]
    for name, render in RENDER.items():
        if name in found:
            parts.append(render(found[name]))
    return "\n\n".join(parts)


def _lines(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _shape(shape: Row) -> str:
    return (
        f"{shape['Hq']}/{shape['Hkv']} B={shape['B']} N={shape['N']} M={shape['M']} k={shape['k']}"
    )


def _number(row: Row, key: str, digits: int = 2) -> str:
    return f"{row[key]:.{digits}f}" if key in row else "-"


def _us(row: Row, name: str) -> str:
    return f"{row['times'][name]['us']:.1f}" if name in row["times"] else "-"


def _attention(found: Row) -> str:
    head = ["shape", "MiB", "ours us", "ours dense", "flash", "cuDNN", "paper's", "read only"]
    head += ["share of read bandwidth", "over best dense", "over paper's"]
    rows = []
    for row in found["rows"]:
        names = ("ours", "ours dense", "flash", "cudnn", "paper", "read only")
        times = [_us(row, name) for name in names]
        ratios = [_number(row, k) for k in ("bandwidth_share", "over_best_dense", "over_paper")]
        rows.append([_shape(row["shape"]), _number(row, "mib", 0), *times, *ratios])
    text = f"Attention, us a layer (read bandwidth {found['read_bytes_per_s'] / 1e12:.2f} TB/s)\n\n"
    refused = "".join(f"\n\nRefused: {line}" for line in found["refused"])
    return text + _lines(head, rows) + refused


def _times(title: str) -> Callable[[Row], str]:
    def render(found: Row) -> str:
        names = list(found["rows"][0]["times"])
        rows = [
            [_shape(row["shape"]), *[_us(row, name) for name in names]] for row in found["rows"]
        ]
        return f"{title}, us a layer\n\n" + _lines(["shape", *names], rows)

    return render


def _quant(found: Row) -> str:
    rows = []
    for row in found["rows"]:
        for name, gain in row["over_best_dense"].items():
            error = row["relative_output_error_of_storage"][name]
            rows.append(
                [_shape(row["shape"]), name, _us(row, name), f"{gain:.2f}",
                 f"{row['over_fp8_dense'][name]:.2f}", f"{error:.4f}"]
            )  # fmt: skip
    head = ["shape", "storage", "us", "over best bf16 dense", "over fp8 dense", "storage error"]
    return "Narrow caches\n\n" + _lines(head, rows)


def _solver(found: Row) -> str:
    rows = []
    for name, ms in found["ms"].items():
        quality = found["quality"].get(name, {})
        keys = ("orthonormality", "residual_over_optimum", "energy")
        cells = [f"{quality[key]:.3g}" if key in quality else "-" for key in keys]
        rows.append([name, f"{ms:.3f}", *cells])
    head = ["solver, 256 matrices of 128 x 128", "ms", "orthonormality", "residual", "energy"]
    spectra = found["spectra"]
    tail = f"40 spectra at k = 16, 32, 48, 64: misses {spectra['misses'] or 'none'}."
    return _lines(head, rows) + "\n\n" + tail


def _step(found: Row) -> str:
    rows = []
    for row in found["rows"]:
        ms, share = row["ms"], row["of_roofline"]
        other = "alone" if row["overlap"] else "overlapped"
        otherwise = " / ".join(f"{ms[f'{name}, {other}']:.2f}" for name in ("k=32", "dense"))
        rows.append(
            [f"{row['model']} B={row['B']} N={row['N']}", f"{ms['k=32']:.2f}", f"{ms['dense']:.2f}",
             f"{otherwise} {other}",
             f"{share['k=32']:.2f}", f"{share['dense']:.2f}", f"{row['gain']:.3f}",
             f"{row['roofline_gain']:.3f}", all(row["tokens_equal_eager"].values())]
        )  # fmt: skip
        for name, value in row.get("transformers_ms", {}).items():
            rows.append([f"transformers, {name}", f"{value:.2f}", *["-"] * 7])
    head = ["whole step", "k=32 ms", "dense ms", "the other way", "of roofline"]
    return _lines([*head, "dense of roofline", "gain", "roofline gain", "tokens = eager"], rows)


def _capacity(found: Row) -> str:
    rows = [
        [row["model"], row["N"], name, row["batch"][name], f"{speed:.0f}",
         f"{speed / row['tokens_per_s']['dense']:.2f}"]
        for row in found["rows"]
        for name, speed in row["tokens_per_s"].items()
    ]  # fmt: skip
    return _lines(["equal KV memory", "N", "cache", "batch", "tokens/s", "gain"], rows)


def _prefill(found: Row) -> str:
    rows = [
        [row["model"], f"{row['us']['prefill'] / 1e3:.1f}",
         *[f"{100 * value:.2f} %" for value in row["share"].values()]]
        for row in found["rows"]
    ]  # fmt: skip
    return _lines(["prefill, N = 2,880", "ms", *found["rows"][0]["share"]], rows)


def _planes(found: Row) -> str:
    rows = []
    for row in found["rows"]:
        us = {name: timing["us"] for name, timing in row["times"].items()}
        for name, gain in row["over_best_dense"].items():
            rows.append(
                [_shape(row["shape"]), name, f"{us[name]:.1f}", f"{gain:.2f}",
                 f"{row['over_fp8_dense'][name]:.2f}"]
            )  # fmt: skip
        rivals = [f"{name} {us[name]:.1f}" for name in us if name not in row["over_best_dense"]]
        rows.append([_shape(row["shape"]), ", ".join(rivals), *["-"] * 3])
    head = ["shape", "bytes a token and head", "us", "over best bf16 dense", "over fp8 dense"]
    return "Channels of a few bits\n\n" + _lines(head, rows)


def _packing(found: Row) -> str:
    rows = [
        [row["model"], f"{row['us']:.0f}", f"{100 * row['words_that_differ']:.2f} %"]
        for row in found["rows"]
    ]
    return _lines(["packing, N = 2,880", "us", "words that differ from plain PyTorch's"], rows)


RENDER: dict[str, Callable[[Row], str]] = {
    "attention": _attention,
    "latency": _times("One call at B = 1"),
    "ragged": _times("Ragged batch"),
    "quant": _quant,
    "baselines": _times("Channel baselines that rebuild dense Keys"),
    "solver": _solver,
    "prefill": _prefill,
    "step": _step,
    "capacity": _capacity,
    "planes": _planes,
    "packing": _packing,
}


def goals(found: Row) -> str:
    """Markdown: every goal of the kernels that `found` can judge, with the measured value."""
    rows = [row for judge in JUDGES for row in judge(found)]
    marks = [[goal, measured, "yes" if met else "no"] for goal, measured, met in rows]
    head = f"Hardware: {found.get('hardware', '?')}; torch {found.get('torch', '?')}.\n\n"
    return head + _lines(["goal", "measured", "met"], marks)


Judged = Iterable[tuple[str, str, bool]]


def _pick(found: Row, **wanted: object) -> list[Row]:
    """Rows of benchmark A with k = 32 (unless asked) whose shape has these fields."""
    wanted = {"k": 32, "M": 64, **wanted}
    rows = found.get("attention", {}).get("rows", [])
    return [r for r in rows if all(r["shape"][key] == value for key, value in wanted.items())]


def _judge_bandwidth(found: Row) -> Judged:
    goals_mb = ((1350, 0.95), (338, 0.95), (169, 0.88), (61, 0.72), (42, 0.62), (7.6, 0.24))
    for megabytes, goal in goals_mb:
        for row in _pick(found):
            if abs(row["mib"] * 1.048576 - megabytes) / megabytes < 0.03:
                share = row["bandwidth_share"]
                times = row["times"]
                limit = share * times["ours"]["us"] / times["read only"]["us"]
                yield (
                    f"{_shape(row['shape'])}, {megabytes} MB: >= {goal} of the read bandwidth",
                    f"{share:.3f} (a read-only launch reaches {limit:.3f})",
                    share >= goal,
                )


def _judge_dense(found: Row) -> Judged:
    for tokens, low, high, goal in (
        (">= 512k", 500_000, 1 << 40, 1.55),
        ("128k", 120_000, 500_000, 1.48),
        ("23k", 20_000, 120_000, 1.30),
        ("any", 0, 1 << 40, 1.0),
    ):
        rows = [
            r for r in _pick(found)
            if low <= r["shape"]["B"] * r["shape"]["N"] < high and "over_best_dense" in r
        ]  # fmt: skip
        if rows:
            worst = min(rows, key=lambda r: r["over_best_dense"])
            value = worst["over_best_dense"]
            yield (
                f"over the best dense, B*N {tokens}: >= {goal}",
                f"{value:.3f} ({_shape(worst['shape'])})",
                value >= goal,
            )
    rows = [r for r in _pick(found) if "own_dense_over_other" in r]
    if rows:
        worst = min(rows, key=lambda r: r["own_dense_over_other"])
        value = worst["own_dense_over_other"]
        text = f"{value:.3f} ({_shape(worst['shape'])})"
        yield "our dense over any other dense: >= 0.98", text, value >= 0.98


def _judge_paper(found: Row) -> Judged:
    for Hq, goal in ((32, 2.5), (28, 4.0)):
        rows = [r for r in _pick(found, Hq=Hq) if "over_paper" in r]
        if rows:
            worst = min(rows, key=lambda r: r["over_paper"])
            value = worst["over_paper"]
            text = f"{value:.2f} ({_shape(worst['shape'])})"
            yield f"over the paper's kernels, {Hq} heads: >= {goal}", text, value >= goal


def _judge_latency(found: Row) -> Judged:
    for N, goal in ((576, 5.0), (2880, 6.5), (16384, 14.0)):
        for row in _pick(found, Hq=32, B=1, N=N):
            us = row["times"]["ours"]["us"]
            floor = row["times"]["read only"]["us"]
            text = f"{us:.2f} us (read-only launch {floor:.2f})"
            yield f"B = 1 in a graph, N = {N}: <= {goal} us", text, us <= goal
        for row in found.get("latency", {}).get("rows", []) if not _pick(found) else []:
            if row["shape"]["Hq"] == 32 and row["shape"]["N"] == N:
                us = row["times"]["early launch"]["us"]
                text = f"{us:.2f} us (read-only launch {row['times']['read only']['us']:.2f})"
                yield f"B = 1 in a graph, N = {N}: <= {goal} us", text, us <= goal


def _judge_quant(found: Row) -> Judged:
    for row in found.get("quant", {}).get("rows", []):
        where = f"{row['shape']['Hq']}/{row['shape']['Hkv']} B={row['shape']['B']}"
        dense, goal = row["over_best_dense"]["bf16 k=32"], 1.55 if row["shape"]["B"] > 8 else 1.48
        yield f"bf16 k = 32 over the best dense, {where}: >= {goal}", f"{dense:.2f}", dense >= goal
        for name, goal in (("k=32, r=32", 3.5), ("k=16, r=16", 6.0), ("fp8 K, fp8 V", 2.7)):
            value = row["over_best_dense"][name]
            goal_text = f"{name} over the best bf16 dense, {where}: >= {goal}"
            yield goal_text, f"{value:.2f}", value >= goal
        value = row["over_fp8_dense"]["fp8 K, fp8 V"]
        yield f"fp8 K, fp8 V over fp8 dense, {where}: >= 1.4", f"{value:.2f}", value >= 1.4


CROWDED = {"Llama3-8B": 6.0, "Qwen2.5-VL-7B": 5.0}  # tokens/s over dense at equal KV memory


def _judge_step(found: Row) -> Judged:
    for row in found.get("step", {}).get("rows", []):
        goal = 0.80 if row["B"] == 1 else 0.85
        name = f"{row['model']} B={row['B']} N={row['N']}"
        share = row["of_roofline"]["k=32"]
        yield f"whole step, {name}: >= {goal} of the roofline", f"{share:.2f}", share >= goal
        gap = abs(row["gain"] / row["roofline_gain"] - 1)
        text = f"{row['gain']:.3f} against {row['roofline_gain']:.3f}"
        yield f"whole step, {name}: gain within 3 % of the roofline's", text, gap <= 0.03
        others = {"DynamicCache eager": 9.0, "StaticCache compiled": 1.5}
        for other, value in row.get("transformers_ms", {}).items():
            ratio = value / row["ms"]["k=32"]
            goal = others[other]
            goal_text = f"whole step, {name}: over transformers' {other} >= {goal}"
            yield goal_text, f"{ratio:.1f}", ratio >= goal
    for row in found.get("capacity", {}).get("rows", []):
        text = f"{row['gain']:.2f}"
        yield f"tokens/s at equal KV memory, {row['model']}: >= 1.50", text, row["gain"] >= 1.5
        gain, least = row.get("gain_digits"), CROWDED.get(row["model"])
        if gain is not None and least is not None:
            goal_text = f"the same with 24 bytes a token and head, {row['model']}: >= {least}"
            yield goal_text, f"{gain:.2f}", gain >= least


def _judge_solver(found: Row) -> Judged:
    row = found.get("solver")
    if row:
        ms, quality = row["ms"]["ours k=32"], row["quality"]["ours k=32"]
        yield "solver, 256 matrices, k = 32: <= 0.15 ms", f"{ms:.3f} ms", ms <= 0.15
        other = row["ms"].get("CuPy batched eigh")
        if other:
            text = f"{other / ms:.0f}x"
            yield "solver over CuPy's batched eigensolver: >= 45x", text, other / ms >= 45
        residual = quality["residual_over_optimum"]
        yield "solver residual: <= 1.03 of the optimum", f"{residual:.4f}", residual <= 1.03
        slip = row["spectra"]["orthonormality"]
        yield "solver orthonormality on 40 spectra: <= 5e-6", f"{slip:.1e}", slip <= 5e-6
        missed = len(row["spectra"]["misses"].get("32", []))
        yield "solver failures on 40 spectra, k = 32: 0", str(missed), missed == 0
    for row in found.get("prefill", {}).get("rows", []):
        share, noise = (row["share"][f"{kind}: together"] for kind in ("trained", "noise"))
        text = f"{100 * share:.2f} % (noise: {100 * noise:.2f} %)"
        yield f"prefill overhead, {row['model']}, N = 2,880: <= 1 %", text, share <= 0.01


def _judge_planes(found: Row) -> Judged:
    """At 24 bytes a token and head."""
    over_dense = {(32, 16384): 5.0, (8, 16384): 4.5, (1, 16384): 2.5}
    for row in found.get("planes", {}).get("rows", []):
        shape = row["shape"]
        goal = over_dense.get((shape["B"], shape["N"]))
        if goal:
            value = row["over_best_dense"]["24"]
            text = f"24 bytes over the best bf16 dense, {_shape(shape)}: >= {goal}"
            yield text, f"{value:.2f}", value >= goal
        if goal == 5.0:
            value = row["over_fp8_dense"]["24"]
            text = f"24 bytes over the fp8 dense, {_shape(shape)}: >= 2.5"
            yield text, f"{value:.2f}", value >= 2.5
        if (shape["B"], shape["N"], shape["Hq"]) == (1, 2880, 32):
            us = row["times"]["24"]["us"]
            yield "24 bytes, B = 1, N = 2,880: <= 6.0 us", f"{us:.2f} us", us <= 6.0
    prefills = {r["model"]: r["us"]["prefill"] for r in found.get("prefill", {}).get("rows", [])}
    for row in found.get("packing", {}).get("rows", []):
        if row["model"] in prefills:
            share = row["us"] / prefills[row["model"]]
            text = f"packing of a prefill, {row['model']}, N = 2,880: <= 2 %"
            yield text, f"{100 * share:.2f} %", share <= 0.02


JUDGES: tuple[Callable[[Row], Judged], ...] = (
    _judge_bandwidth,
    _judge_dense,
    _judge_paper,
    _judge_latency,
    _judge_quant,
    _judge_step,
    _judge_solver,
    _judge_planes,
)
