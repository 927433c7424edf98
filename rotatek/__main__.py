"""Command line: ask, compare, calibrate, evaluate, info. Answers on stdout, the rest on stderr."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NoReturn

from rotatek.errors import SettingError, UserError, public_message

METHODS: Final = ("full", "think", "spark", "rotatek")


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message[:1].upper()}{message[1:]}. Try `{self.prog} --help`.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, or 2 for a refusal, or the command's own."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    words = list(sys.argv[1:] if argv is None else argv)
    args = _parser(words).parse_args(words)
    try:
        return args.run(args) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as exc:
        print(public_message(exc), file=sys.stderr)
        return 2


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m rotatek", description="Ask pictures with a compressed cache.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    ask = commands.add_parser("ask", help="answer a question about an image")
    _add_request(ask)
    _add_settings(ask)
    ask.add_argument("--json", action="store_true", help="print the answer and its figures as JSON")
    ask.set_defaults(run=_ask)
    compare = commands.add_parser("compare", help="every method side by side at one KV budget")
    _add_request(compare)
    _add_settings(compare)
    compare.add_argument("--json", action="store_true", help="print one JSON object per method")
    compare.set_defaults(run=_compare)
    calibrate = commands.add_parser("calibrate", help="bases computed once, from many images")
    _add_request(calibrate)
    calibrate.add_argument("--out", required=True, metavar="FILE.safetensors")
    calibrate.set_defaults(run=_calibrate)
    evaluate = commands.add_parser("evaluate", help="the paper's tables, on any model and suite")
    if words[:1] == ["evaluate"]:  # its options need the registries, which take a second to load
        from rotatek import evaluate as command  # noqa: PLC0415

        command.add_arguments(evaluate)
        evaluate.set_defaults(run=command.main)
    info = commands.add_parser("info", help="versions, device, kernels and models, for bug reports")
    info.add_argument("--model", default="pocket", metavar="NAME", help="model to describe")
    info.set_defaults(run=_info)
    return parser


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", nargs="?", metavar="IMAGE", help="a PNG, JPEG or WebP file")
    parser.add_argument("question", nargs="?", metavar="QUESTION")
    parser.add_argument(
        "--batch", metavar="FILE.jsonl", help='lines of {"image": PATH, "question": TEXT}'
    )
    parser.add_argument(
        "--model", default="pocket", metavar="NAME", help="pocket, a folder, or a hub id"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, or auto for several GPUs")
    parser.add_argument("--four-bit", action="store_true", help="4-bit weights (bitsandbytes)")
    parser.add_argument("--graph", action="store_true", help="decode by CUDA graph (GPU only)")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("compression")
    group.add_argument("--tokens", default="none", help="token pruner: none, fastv")
    group.add_argument("--keep-tokens", type=float, default=1.0, metavar="F", help="in (0, 1]")
    group.add_argument("--channels", default="rotatek", help=", ".join(METHODS))
    group.add_argument("--keep-channels", type=float, default=0.25, metavar="F", help="in (0, 1]")
    group.add_argument("--weighting", default="paper", help="paper, none or consistent")
    group.add_argument("--solver", default="subspace", help="subspace or eigh")
    group.add_argument("--recovery", default="sign", help="SparK: sign or mean")
    group.add_argument("--widths", default="uniform", help="uniform or adaptive (beyond the paper)")
    group.add_argument("--calibration", metavar="FILE", help="bases made by `calibrate`")
    group.add_argument("--values", default="full", help="full or rotate (beyond the paper)")
    group.add_argument(
        "--cache-dtype", default="model", help="RotateK's storage: model, fp8 or int8"
    )
    group.add_argument("--keep-values", type=float, default=1.0, metavar="F", help="in (0, 1]")


def _settings(args: argparse.Namespace, **changes: Any) -> Any:
    """The `Settings` of a command line."""
    from rotatek.config import Settings  # noqa: PLC0415  # keeps --help instant

    names = (
        "tokens", "keep_tokens", "channels", "keep_channels", "weighting", "solver", "recovery",
        "widths", "values", "keep_values", "calibration", "cache_dtype",
    )  # fmt: skip
    return Settings(**{name: getattr(args, name) for name in names} | changes)


def _rows(args: argparse.Namespace) -> list[tuple[str, str]]:
    """(image path, question) pairs, from the arguments or the batch file."""
    if args.batch is None:
        if args.image is None or args.question is None:
            raise UserError("Give an IMAGE and a QUESTION, or --batch FILE.jsonl.")
        return [(args.image, args.question)]
    if args.image is not None:
        raise UserError("Give either IMAGE and QUESTION or --batch, not both.")
    try:
        lines = Path(args.batch).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise UserError("The batch file cannot be read. Check its name and encoding.") from exc
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            image, question = row["image"], row["question"]
        except (ValueError, KeyError, TypeError) as exc:
            raise UserError(
                f'Line {number} of the batch file is not {{"image": PATH, "question": TEXT}}.'
            ) from exc
        rows.append((str(image), question))
    if not rows:
        raise UserError("The batch file has no questions. Add one JSON object a line.")
    return rows


def _engine(args: argparse.Namespace) -> Any:
    from rotatek.engine import Engine  # noqa: PLC0415  # heavy imports only when they are needed
    from rotatek.models import load  # noqa: PLC0415

    vlm = load(args.model, args.device, four_bit=args.four_bit)
    return Engine(vlm, graphs=args.graph)


def _reports(args: argparse.Namespace, columns: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Per question, one report per column in their order. The model loads after the first check.

    In a batch a bad row becomes a report with "error" and the others go on; the command then ends
    with status 2.
    """
    from rotatek.inputs import make_request, open_image  # noqa: PLC0415

    batch, engine, refused = args.batch is not None, None, 0
    for image, question in _progress(_rows(args), batch):
        place = {"image": image, "question": question} if batch else {}
        try:
            request = make_request(open_image(Path(image)), question, args.max_new_tokens)
            engine = engine or _engine(args)
            yield [place | report for report in _answers(engine, request, columns)]
        except UserError as exc:
            if not batch:
                raise
            refused += 1
            yield [place | {"error": exc.message}]
    if refused:
        raise UserError(f'{refused} of the batch\'s questions could not be answered; see "error".')


def _answers(engine: Any, request: Any, columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one question; one report per column."""
    from rotatek.events import Failed, Finished, Prefilled  # noqa: PLC0415

    started: dict[str, Any] = {}
    reports: dict[str, dict[str, Any]] = {}
    for event in engine.compare(request, columns, trace=False):
        if isinstance(event, Failed):
            raise UserError(event.message)
        if isinstance(event, Prefilled):
            started[event.column] = event
        elif isinstance(event, Finished):
            name = event.column
            reports[name] = _report(started[name], event, columns[name])
    return [reports[name] for name in columns]


def _report(before: Any, after: Any, settings: Any) -> dict[str, Any]:
    """What `--json` prints. kv_bytes are live when the answer ends; times are milliseconds."""
    figures = after.metrics
    return {
        "method": after.column,
        "answer": after.answer,
        "new_tokens": after.new_tokens,
        "visual_tokens": before.visual_tokens,
        "visual_tokens_kept": before.visual_kept,
        "nominal_kv": round(before.nominal_kv, 6),
        "kv_bytes": figures["kv_bytes"],
        "kv_bytes_full": figures["kv_bytes_full"],
        "kv_bytes_by_part": figures["bytes"],
        "prefill_ms": round(before.prefill_ms, 3),
        "decode_ms_per_token": round(after.decode_ms_per_token, 3),
        "attention": before.attention,
        "agreement": figures["agreement"],
        "first_divergence": figures["first_divergence"],
        "settings": settings.as_dict(),
    }


def _ask(args: argparse.Namespace) -> None:
    columns = {"answer": _settings(args)}
    for (report,) in _reports(args, columns):
        for name in ("method", "agreement", "first_divergence"):  # there is nothing beside it
            report.pop(name, None)
        as_json = args.json or args.batch is not None
        print(json.dumps(report, ensure_ascii=False) if as_json else report["answer"], flush=True)


def _compare(args: argparse.Namespace) -> None:
    for reports in _reports(args, _matched(args)):
        if args.json or args.batch is not None:
            for report in reports:
                print(json.dumps(report, ensure_ascii=False), flush=True)
        else:
            print(_table(reports), flush=True)


def _calibrate(args: argparse.Namespace) -> None:
    from rotatek.calibration import Calibrator  # noqa: PLC0415
    from rotatek.compression import RotateKCache  # noqa: PLC0415
    from rotatek.decode import prefill  # noqa: PLC0415
    from rotatek.inputs import make_request, open_image  # noqa: PLC0415
    from rotatek.models import load  # noqa: PLC0415

    rows, vlm, calibrator = (
        _rows(args),
        load(args.model, args.device, four_bit=args.four_bit),
        Calibrator(),
    )
    for image, question in _progress(rows, True):
        request = make_request(open_image(Path(image)), question, 1)
        embedded = vlm.embed(vlm.prompt(request))
        cache = RotateKCache(vlm.model, embedded.inputs(), recorder=calibrator)
        prefill(vlm, embedded, cache)
    calibrator.save(args.out, vlm.name)
    print(f"{calibrator.samples} prompts -> {args.out}")


def _matched(args: argparse.Namespace) -> dict[str, Any]:
    """Baseline, token-only at the settings' nominal budget, and every channel method."""
    from rotatek.budget import matched_keep_tokens, nominal_kv  # noqa: PLC0415
    from rotatek.config import BASELINE  # noqa: PLC0415

    asked = _settings(args)
    if asked.channels == "full":
        raise SettingError("channels", "rotatek, spark or think in a comparison", asked.channels)
    pruner = asked.tokens if asked.tokens != "none" else "fastv"
    budget = matched_keep_tokens(nominal_kv(asked), 1.0)
    columns = {"baseline": BASELINE}
    columns[f"{pruner} only"] = _settings(
        args, tokens=pruner, keep_tokens=budget, channels="full", keep_channels=1.0,
        widths="uniform", values="full", keep_values=1.0, cache_dtype="model",
    )  # fmt: skip
    for name in ("think", "spark", "rotatek"):
        plain = {"widths": "uniform", "values": "full", "cache_dtype": "model"}
        own = {} if name == "rotatek" else plain
        columns[name] = _settings(args, channels=name, **own)
    return columns


def _table(reports: Sequence[dict[str, Any]]) -> str:
    """Methods side by side."""
    head = ("method", "tokens", "nominal", "KV bytes", "of full", "ms/token", "same", "answer")
    rows = [head]
    for r in reports:
        share = r["kv_bytes"] / r["kv_bytes_full"]
        rows.append(
            (
                r["method"], f"{r['visual_tokens_kept']}/{r['visual_tokens']}",
                f"{r['nominal_kv']:.3f}", f"{r['kv_bytes']:,}", f"{share:.3f}",
                f"{r['decode_ms_per_token']:.1f}", f"{r['agreement']:.2f}",
                r["answer"].replace("\n", " ")[:60],
            )
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _progress(rows: Sequence[tuple[str, str]], shown: bool) -> Any:
    """`rows`, with a bar on stderr for a batch."""
    from tqdm import tqdm  # noqa: PLC0415

    return tqdm(rows, unit="question", file=sys.stderr, disable=not shown)


def _info(args: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415

    from kernels.dispatch import backend  # noqa: PLC0415
    from rotatek.models import CHECKPOINTS  # noqa: PLC0415
    from rotatek.models.loading import card_line  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "cpu"
    print(f"python        {platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("rotatek", "torch", "transformers", "triton", "gradio", "plotly", "pillow"):
        print(f"{package:<13} {_version(package)}")
    print(f"device        {device} ({name}, {torch.get_num_threads()} threads)")
    print(f"attention     {backend(device)}")
    print(f"models        {', '.join(CHECKPOINTS)}, a folder, or a hub id")
    print(f"model         {card_line(args.model)}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
