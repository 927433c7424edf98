"""`rotatek compare`: every method side by side, at the budget of the given settings."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rotatek.cli.ask import reports
from rotatek.cli.settings_arguments import add_sampling, add_settings, given
from rotatek.cli.shared import add_request, aligned, print_json, say
from rotatek.engine.engine import Engine
from rotatek.engine.equal_bytes import matched_live
from rotatek.errors import UserError
from rotatek.inputs.request import Request
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings, check_taken, matched


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request(parser)
    add_sampling(parser)
    parser.add_argument(
        "--equal", choices=("nominal", "live"), default="nominal",
        help="what every column has alike: the nominal share, as the paper counts it, or the live "
        "bytes of the cache, bases, scales and masks included. Default: nominal",
    )  # fmt: skip
    add_settings(parser, "a quarter of the Key channels")
    parser.add_argument("--json", action="store_true", help="print one JSON object per method")


def run(args: argparse.Namespace) -> None:
    """Print a table for each question, or a line of JSON for each method; a batch is JSON."""
    options = given(args)
    nominal = columns(options)  # refused here, if at all: no model is loaded yet

    def live(engine: Engine, request: Request) -> dict[str, Settings]:
        prompt = engine.vlm.prompt(request, engine.limits.max_prompt_tokens)
        return columns(options, partial(matched_live, engine.vlm, prompt))

    for found in reports(args, live if args.equal == "live" else nominal):
        if args.json or args.batch is not None:
            for report in found:
                print_json(report)
            continue
        head = ("method", "tokens", "nominal", "KV bytes", "of full", "ms/token", "same", "answer")
        lines = [
            (
                one["method"],
                f"{one['visual_tokens_kept']}/{one['visual_tokens']}",
                f"{one['nominal_kv']:.3f}",
                f"{one['kv_bytes']:,}",
                f"{one['kv_bytes'] / one['kv_bytes_full']:.3f}",
                f"{one['decode_ms_per_token']:.1f}",
                f"{one['agreement']:.2f}",
                one["answer"].replace("\n", " ")[:60],
            )
            for one in found
        ]
        say(aligned([head, *lines]))


def columns(
    options: Mapping[str, Any], match: Callable[..., dict[str, Settings]] = matched
) -> dict[str, Settings]:
    """The comparison that flat options ask for: they set the budget and the chosen method, and one
    that belongs to another channel method changes that method's column."""
    method = CHANNELS.find(options.get("channels", CHANNELS.default.name))
    owners = {key: [one for one, _ in owned] for key, owned in CHANNELS.options().items()}
    others = {
        key: value for key, value in options.items() if method not in owners.get(key, [method])
    }
    chosen = Settings.from_dict({key: options[key] for key in options if key not in others})
    if chosen.is_baseline:
        raise UserError(
            "There is nothing to compare: these settings compress nothing. Choose others."
        )
    made = match(chosen, **others)
    check_taken(made.values(), others)
    return made
