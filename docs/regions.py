"""The marked regions of the documents: tables that `make results` draws from committed data.

In Markdown a region stands between `<!-- data: NAME -->` and `<!-- end -->`. What has not been
measured says so in one sentence.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from docs import figures, frontier, goals
from docs.figures import RESULTS, data, place, rows, share
from rotatek.evaluation import claim_rows, equal_bytes_table, report
from rotatek.evaluation.answer_archive import SUFFIX
from rotatek.evaluation.journal import weights_id
from rotatek.evaluation.tables import tables
from rotatek.models import load

REGION: Final = re.compile(r"(<!-- data: (\w[\w-]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
EVALUATE: Final = "sh deploy/evaluate.sh OUT 480"
MAIN: Final = {"pocket": "results", "pocket-llava": "results-pocket-llava"}
Built = Mapping[str, Any]
Cells = Sequence[object]


def filled(text: str) -> str:
    """A document with its regions as the data have them."""
    return REGION.sub(lambda found: found[1] + REGIONS[found[2]]() + found[4], text)


def lines(heads: Cells, body: Iterable[Cells], command: str = EVALUATE) -> str:
    """A Markdown table; without rows a sentence that says what makes it."""
    made = [f"| {' | '.join(map(str, cells))} |" for cells in body]
    if not made:
        return f"Not measured yet: `{command}` measures it.\n"
    top = f"| {' | '.join(map(str, heads))} |", "|" + "---|" * len(heads)
    return "\n".join([*top, *made]) + "\n"


def nominal(value: float) -> str:
    """A nominal share, as the text writes it."""
    return f"{value:.3g}".removeprefix("0")


# --- evaluations -------------------------------------------------------------------------------


def every() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every committed results file of an evaluation, by name; the page's first."""
    stems = [path.name.removesuffix(SUFFIX) for path in sorted(RESULTS.glob(f"answers/*{SUFFIX}"))]
    for name in dict.fromkeys([*MAIN.values(), *(MAIN.get(stem, stem) for stem in stems)]):
        found = data(name)
        if found:
            yield f"{name}.json", found


def claims() -> str:
    """Every claim, judged for every model at equal live bytes and at the paper's count."""
    models = frontier.committed()
    without = [_name(built) for built in models if not built.get("claims")]
    said = f"\nNot judged for {' and '.join(without)}, whose answers were not kept: `{EVALUATE}`.\n"
    return lines(*claim_rows.of_answers(models)) + (said if without else "")


def runs() -> str:
    """What was asked of which weights, in which type, where; and whether those are shipped."""
    heads = "results", "model", "weights", "shipped", "type", "device", "questions", "settings"
    body = []
    for name, built in every():
        model, asked = built["model"], [table["questions"] for table in built["tables"]]
        labels = {row["label"] for table in built["tables"] for row in table["rows"]}
        most, of = max(asked, default=0), built["suite"]["questions"]
        body.append((
            f"`{name}`", model["name"], f"`{model['weights']}`",
            "yes" if model["weights"] == shipped(model["name"]) else "no: replaced since",
            report.type_of(built), built.get("ran_on", {}).get("device", "not recorded"),
            f"{of:,}" if most == of else f"{most:,} of {of:,}", len(labels),
        ))  # fmt: skip
    return lines(heads, body)


@lru_cache
def shipped(name: str) -> str:
    """The fingerprint of an embedded model's weights as they are in this checkout."""
    return weights_id(load(name, "cpu"))


# Rows of the table `core` that a card shows: the paper's, the rivals people use, and beyond both.
HEADLINE: Final = (
    "Uncompressed", "ThinK, 32 Key channels", "SparK, 32 Key channels", "RotateK, 32 Key channels",
    "FastV only (0.25)", "FastV + ThinK (0.25)", "FastV + SparK (0.25)", "FastV + RotateK (0.25)",
    "Full Keys (fp8)", "KIVI (4 bits)", "TurboQuant (4 bits)", "RotateK (0.75 bits)",
)  # fmt: skip


def headline() -> str:
    """A few settings on both models, side by side."""
    return side_by_side("core", frontier.committed(), only=HEADLINE)


def equal_bytes() -> str:
    """Ours and the strongest rival of the same live bytes, at every budget and for every model."""
    models = frontier.committed()
    found = [{one.times: one for one in goals.strongest(built)} for built in models]
    heads = ["times smaller"]
    for built in models:
        heads += [f"{_name(built)}: RotateK", "strongest rival", "points (95 %)"]
    body = [(times, *(cell for one in found for cell in _pair(one.get(times))))
            for times in dict.fromkeys(times for one in found for times in one)]  # fmt: skip
    return lines(heads, body)


def _pair(one: goals.Strongest | None) -> tuple[str, str, str]:
    """Ours, the rival and the difference; empty cells for none."""
    if one is None:
        return "", "", ""
    ours, rival = (label.rpartition(", ")[0] for label in (one.ours, one.rival))
    return f"{100 * one.score:.1f}, {ours}", f"{100 * one.other:.1f}, {rival}", one.said


def _heads(models: Sequence[Built]) -> list[str]:
    """Two columns a model."""
    heads = []
    for built in models:
        heads += [f"{_name(built)}: live bytes ({report.type_of(built)})", "score"]
    return heads


def _numbers(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """Live bytes and score with its interval; empty cells for no row."""
    if row is None:
        return "", ""
    return share(row["actual_kv"]), f"{100 * row['score']:.1f}"


def side_by_side(
    name: str, models: Sequence[Built], of_suite: str = "", only: Sequence[str] = ()
) -> str:
    """One table of an evaluation, a pair of columns a model that was asked it; `only` some rows."""
    found = {_name(built): table for built in models
             for table in built["tables"] if table["name"] == name}  # fmt: skip
    having = [built for built in models if _name(built) in found]
    missing = [_name(built) for built in models if _name(built) not in found]
    title = titles()[name] + of_suite
    labels = dict.fromkeys(row["label"] for table in found.values() for row in table["rows"]
                           if not only or row["label"] in only)  # fmt: skip
    of = [{row["label"]: row for row in table["rows"]} for table in found.values()]
    body = [(label, *(cell for one in of for cell in _numbers(one.get(label))),
             next(nominal(one[label]["nominal_kv"]) for one in of if label in one))
            for label in labels]  # fmt: skip
    if not body:
        return f"*{title}* has not been measured yet: `{EVALUATE}` measures it.\n"
    made = lines((title, *_heads(having), "nominal"), body)
    said = [f"{one}: {_asked(found[one])}" for one in found]
    said += [f"{one}: not measured yet" for one in missing]
    return f"{made}\n{'; '.join(said)}.\n"


def _asked(table: Mapping[str, Any]) -> str:
    """How many questions a table rests on, and how far its intervals reach."""
    wide = [100 * (row["interval"][1] - row["interval"][0]) / 2 for row in table["rows"]]
    return (f"{_count(table)}, 95 % intervals of {min(wide):.0f} to {max(wide):.0f} points either "
            "way")  # fmt: skip


def _count(table: Mapping[str, Any]) -> str:
    of = "" if table["questions"] == table["of"] else f" of {table['of']:,}"
    return f"{table['questions']:,}{of} questions"


def titles() -> dict[str, str]:
    """Of every table, by name."""
    return {name: table.title for name, table in tables().items()} | {
        equal_bytes_table.NAME: equal_bytes_table.TITLE
    }


def drawn(*names: str) -> Callable[[], str]:
    """Some tables on both main suites, one below the other."""
    return lambda: "\n".join(side_by_side(name, frontier.committed()) for name in names)


def beside() -> str:
    """The table `core` on the suites beside the main one, a table a suite."""
    suites: dict[str, list[Built]] = {}
    for name, built in every():
        if name.removesuffix(".json") not in MAIN.values():
            suites.setdefault(built["suite"]["name"], []).append(built)
    words = {"questions.jsonl": "handmade pages", "pocket-unseen (seed 0)": "unseen renderers"}
    return "\n".join(
        side_by_side("core", sorted(models, key=_name), f": {words.get(suite, suite)}")
        for suite, models in suites.items()
    )


def status() -> str:
    """Every table, and how many questions each model was asked of it."""
    models = frontier.committed()
    body = []
    for name, title in titles().items():
        cells = []
        for built in models:
            mine = next((one for one in built["tables"] if one["name"] == name), None)
            cells.append("not measured yet" if mine is None else _count(mine))
        body.append((f"`{name}`", title, *cells))
    heads = ("table", "what it compares", *(built["model"]["name"] for built in models))
    old = [_name(built) for built in models if not built.get("claims")]
    whose = (
        f"\nThe answers of {' and '.join(old)} were not kept: these are rows of earlier tables, "
    )
    said = f"{whose}in which SparK after a pruner has its signs.\n"
    return lines(heads, body) + (said if old else "")


def margins() -> str:
    """Ours less every other form after the same pruner at the same nominal share, in points."""
    body = []
    for built in frontier.committed():
        for part, pages in (("all questions", ""), ("whole pages", "-long")):
            gaps: dict[str, list[float]] = {}
            for table in built["tables"]:
                if table["name"] in (f"budget-fastv{pages}", f"budget-visionzip{pages}"):
                    _gaps(table["rows"], gaps)
            body += [(_name(built), part, other, f"{min(points):+.1f} to {max(points):+.1f}",
                      len(points)) for other, points in gaps.items()]  # fmt: skip
    return lines(("model", "", "RotateK less", "points", "budgets"), body)


def _gaps(found: Sequence[Mapping[str, Any]], gaps: dict[str, list[float]]) -> None:
    """Add a table's differences at each nominal share, by the other row's words."""
    for mine in found:
        if " + RotateK (" in mine["label"]:
            for row in found:
                if row is not mine and row["nominal_kv"] == mine["nominal_kv"]:
                    other = row["label"].rpartition(" (")[0]
                    gaps.setdefault(other, []).append(100 * (mine["score"] - row["score"]))


def _name(built: Built) -> str:
    return str(built["model"]["name"])


# --- speed and memory ---------------------------------------------------------------------------


def full_size() -> str:
    """Whole models: bytes, steps and prefills of the settings that matter, a column a model."""
    families = data("full_size").get("families", [])
    heads = ["", *(f"{one['model'].partition(' ')[0]}, {one['visual_tokens']:,} visual tokens"
                   for one in families)]  # fmt: skip
    body = []
    for label in dict.fromkeys(label for one in families for label in one["rows"]):
        body.append((label, *(_model_cell(one["rows"].get(label)) for one in families)))
    return lines(heads, body, "python -m benchmarks full-size --json assets/results/full_size.json")


def _model_cell(row: Mapping[str, Any] | None) -> str:
    """MiB of the cache; milliseconds of prefill, of a step, and of one as a graph."""
    if row is None:
        return ""
    graph = figures.measured(row["graph_ms"]) if row["graph_ms"] else "none"
    shown = [figures.measured(row[key]) for key in ("kv_mib", "prefill_ms", "decode_ms")]
    return f"{shown[0]} MiB; {shown[1]}; {shown[2]}, {graph}"


def families() -> str:
    """One picture under a few settings in every family that was run at full size."""
    ran = [*data("full_size").get("families", []), *data("full_size-families").get("families", [])]
    heads = ("", "visual tokens", "KV MiB: full", "Keys 32", "Keys and Values 32",
             "FastV, Keys 32", "step as a graph, ms: full", "Keys 32", "plain step")  # fmt: skip
    labels = "full width, our cache", "RotateK k=32", "RotateK k=32 r=32"
    body = []
    for one in ran:
        dropped = next(label for label in one["rows"] if re.match(r"FastV.*RotateK", label))
        held = [one["rows"][label]["kv_mib"] for label in (*labels, dropped)]
        steps = [one["rows"][label]["graph_ms"] for label in labels[:2]]
        steps.append(one["rows"]["uncompressed"]["decode_ms"])
        body.append((one["model"].partition(" ")[0], f"{one['visual_tokens']:,}",
                     *map(figures.measured, held + steps)))  # fmt: skip
    command = (
        "python -m benchmarks full-size --family NAME --json assets/results/full_size-families.json"
    )
    return lines(heads, body, command)


def efficiency_claims() -> str:
    """What the paper claims of latency, memory and throughput, for both shapes."""
    names = "kernels", "efficiency", "full_size"
    return lines(*claim_rows.of_speed({name: data(name) for name in names}))


def parts() -> str:
    """One layer's attention under each method, and recovery and concatenation where they are."""
    found = rows("kernels", "baselines")
    names = list(dict.fromkeys(name for row in found for name in row["times"]))
    body = [(place(row["shape"]), *(figures.measured(row["times"][name]["us"])
             if name in row["times"] else "" for name in names)) for row in found]  # fmt: skip
    command = "python -m benchmarks baselines --json assets/results/kernels.json"
    return lines(("shape", *names), body, command)


def efficiency() -> str:
    """A step, its attention and the parts of that, the cache and the prefill of every method."""
    keys = ("decode_ms", "attention_ms", "recovery_ms", "join_ms", "kv_mib", "peak_mib",
            "tokens_per_s", "compress_ms")  # fmt: skip
    heads = ["model, rows x visual tokens", "method",
             *(key.replace("_", " ").replace("mib", "MiB") for key in keys)]  # fmt: skip
    found = rows("efficiency", "efficiency") or data("efficiency").get("rows", [])
    body = [(f"{row['model']}, {row['batch']} x {row['visual_tokens']:,}", row["method"],
             *(figures.measured(row[key]) if row.get(key) else "" for key in keys))
            for row in found]  # fmt: skip
    command = "python -m benchmarks efficiency --json assets/results/efficiency.json"
    return lines(heads, body, command)


def planes() -> str:
    """Channels of a few bits beside dense caches and k = 32, microseconds a layer."""
    heads = ("heads", "B", "visual tokens", "24 bytes, us", "mixed", "best bf16 dense", "fp8 dense",
             "k = 32", "over bf16", "over fp8")  # fmt: skip
    body = []
    for row in rows("kernels", "planes"):
        shape, us = row["shape"], {name: one["us"] for name, one in row["times"].items()}
        gain = row["over_best_dense"]["24"]
        shown = [us["24"], us["24 mixed"], us["24"] * gain, us["dense fp8"], us["k=32"]]
        body.append((f"{shape['Hq']}/{shape['Hkv']}", shape["B"], f"{shape['N']:,}",
                     *map(figures.measured, shown), figures.times(gain),
                     figures.times(row["over_fp8_dense"]["24"])))  # fmt: skip
    return lines(heads, body, "python -m benchmarks planes --json assets/results/kernels.json")


def read() -> str:
    """How well both embedded models read, a row a split."""
    words = {
        "own": "its own renderers, other seeds", "fonts": "fonts it never saw",
        "renderers": "renderers it never saw",
        "browser": "web pages of templates and fonts it never saw",
        "topics": "subjects it never saw, asked freely",
        "scanned": "vouchers scanned and photographed, by printers and in type it never saw",
        "small": "directories in small print, in type it never saw",
    }  # fmt: skip
    heads = (
        "",
        "pocket",
        "short answers",
        "pages",
        "before",
        "pocket-llava",
        "short answers",
        "pages",
        "before",
    )
    models = data("pocket"), data("pocket-llava")
    body = [(said, *(cell for found in models for cell in _read(found, part)))
            for part, said in words.items()]  # fmt: skip
    return lines(heads, body, "python -m pocket.evaluation")


def _read(model: Mapping[str, Any], split: str) -> list[str]:
    """Four cells: all with its interval, short answers, whole pages, all with earlier weights."""
    if split not in model:
        return ["not measured"] + [""] * 3
    found, before = model[split], model.get("earlier_weights", {})
    one, pages = found["all"], found["transcription"]
    exact = f"{share(one['exact'], 2)} ({share(one['low'], 2)} to {share(one['high'], 2)})"
    return [f"{exact} of {one['n']}", share(found["short"]["exact"], 2),
            share(pages["exact"], 2) if pages["n"] else "",
            share(before[split]["all"]["exact"], 2) if split in before else ""]  # fmt: skip


def others() -> str:
    """What the first embedded model reads of pictures that others made, by kind."""
    body = [
        (
            {"real": "real pictures", "handmade": "handmade pages"}[found["file"]],
            f"{share(found['right'], 2)} of {found['questions']}",
            "; ".join(f"{kind} {right} of {n}" for kind, (right, n) in found["kinds"].items()),
            f"{share(found['right_without_caution'], 2)} of {found['without_caution']}",
        )
        for found in data("pocket-others").get("files", [])
    ]
    heads = "", "right", "by kind", "right where the page shows no caution"
    return lines(heads, body, "python -m pocket.evaluation.score FILE.jsonl")


def scans() -> str:
    """What compression does to scanned vouchers."""
    found = data("pocket-others").get("scanned", {"rows": [], "questions": 0})
    body = [
        (row["label"], share(row["actual_kv"]), share(row["nominal_kv"]),
         f"{100 * row['score']:.1f} ({' to '.join(f'{100 * end:.0f}' for end in row['interval'])})")
        for row in found["rows"]
    ]  # fmt: skip
    heads = f"{found['questions']} questions", "live bytes (fp32)", "nominal", "score"
    return lines(heads, body, "sh pocket/evaluation/compression.sh RESULT_FOLDER")


def kinds() -> str:
    """How well both embedded models read each kind of question, over every split."""
    models = data("pocket"), data("pocket-llava")
    totals: list[dict[str, tuple[int, float]]] = []
    for found in models:
        mine: dict[str, tuple[int, float]] = {}
        for part in ("own", "fonts", "renderers", "browser", "topics"):
            for kind, one in found.get(part, {}).get("kind", {}).items():
                asked, right = mine.get(kind, (0, 0.0))
                mine[kind] = asked + one["n"], right + one["n"] * one["exact"]
        totals.append(mine)
    names = sorted(set().union(*totals), key=lambda kind: (-totals[0].get(kind, (0,))[0], kind))
    body = [(kind.replace("_", "/"),
             *(f"{round(one[kind][1])} of {one[kind][0]}" if kind in one else "" for one in totals))
            for kind in names]  # fmt: skip
    return lines(("kind", "pocket", "pocket-llava"), body, "python -m pocket.evaluation")


REGIONS: Final[Mapping[str, Callable[[], str]]] = {
    "claims": claims,
    "runs": runs,
    "headline": headline,
    "equal-bytes": equal_bytes,
    "status": status,
    "budgets": drawn("budget-fastv", "budget-visionzip"),
    "margins": margins,
    "channels": drawn("channels"),
    "beyond": drawn("beyond"),
    "bits": drawn("bits"),
    "ablation": drawn("ablation"),
    "pruners": drawn("pruners"),
    "pages": drawn("budget-fastv-long", "budget-visionzip-long"),
    "pages-channels": drawn("channels-long"),
    "rivals": drawn("rivals"),
    "core": beside,
    "full-size": full_size,
    "families": families,
    "efficiency-claims": efficiency_claims,
    "parts": parts,
    "efficiency": efficiency,
    "planes": planes,
    "goals-bits": lambda: lines(("goal", "measured", "met"), goals.goals()),
    "bits-axes": lambda: lines(goals.bits_heads(), goals.bits_rows(), goals.BITS),
    "stored": lambda: lines(goals.stored_heads(), goals.stored_rows(), goals.STORED),
    "read": read,
    "others": others,
    "scans": scans,
    "kinds": kinds,
}
