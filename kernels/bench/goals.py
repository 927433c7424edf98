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
        rows.append(
            [f"{row['model']} B={row['B']} N={row['N']}", f"{ms['k=32']:.2f}", f"{ms['dense']:.2f}",
             f"{share['k=32']:.2f}", f"{share['dense']:.2f}", f"{row['gain']:.3f}",
             f"{row['roofline_gain']:.3f}", all(row["tokens_equal_eager"].values())]
        )  # fmt: skip
        for name, value in row.get("transformers_ms", {}).items():
            rows.append([f"transformers, {name}", f"{value:.2f}", *["-"] * 6])
    head = ["whole step", "k=32 ms", "dense ms", "of roofline", "dense of roofline", "gain"]
    return _lines([*head, "roofline gain", "tokens = eager"], rows)


def _capacity(found: Row) -> str:
    rows = [
        [row["model"], row["N"], row["batch"]["dense"], row["batch"]["k=32"],
         *[f"{row['tokens_per_s'][name]:.0f}" for name in ("dense", "k=32")],
         f"{row['gain']:.2f}"]
        for row in found["rows"]
    ]  # fmt: skip
    head = ["equal KV memory", "N", "batch dense", "batch k=32", "tokens/s dense", "k=32", "gain"]
    return _lines(head, rows)


def _prefill(found: Row) -> str:
    rows = [
        [row["model"], f"{row['us']['prefill'] / 1e3:.1f}",
         *[f"{100 * value:.2f} %" for value in row["share"].values()]]
        for row in found["rows"]
    ]  # fmt: skip
    return _lines(["prefill, N = 2,880", "ms", *found["rows"][0]["share"]], rows)


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
}
