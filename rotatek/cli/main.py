"""`rotatek COMMAND ...`: finds and runs the command, and reports a failure in one sentence.

Answers go to stdout, everything else to stderr.
"""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from rotatek.errors import FULL, UserError, public_message
from rotatek.inputs.text_files import one_line

COMMANDS: Final = {
    "ask": "answer a question about an image",
    "index": "read pictures and PDF files once, to be asked ever after",
    "store": "what a store of pictures holds; check it, or forget pages",
    "compare": "every method side by side at one KV budget",
    "calibrate": "bases computed once, from many images",
    "evaluate": "the paper's tables, on any model and suite",
    "verify": "second questions, bytes, speed and memory of one model, in ten minutes",
    "page": "serve the web page",
    "serve": "serve the OpenAI chat API, on one machine or many",
    "info": "versions, device, methods and models, for bug reports",
}
REMOVED: Final = {  # flags that are gone, beside the settings that are
    "ask": "every picture's later questions are asked on the cache of its first",
    "at_once": "a store's pages are asked 32 at a time",
    "draw": "assets/suite holds the questions",
    "folder": "name it as --suite",
    "four_bit": "a checkpoint may be quantised itself",
    "jobs": "one process reads all prompts; of evaluate, several share --out by --part I/N",
    "memory": "a store's pages are asked 32 at a time",
    "minutes": "ask fewer --questions",
    "no_image": "the API and the library ask texts alone",
    "no_report": "the report is written each time",
    "pictures": "say how many --questions",
    "place": "the picture is first; the API and the library take parts in any order",
    "rows": "each prompt has its own axes",
    "side": "the suite's longest question is timed",
    "sharing": "--at-once says how many pictures are in memory",
    "video": "give pictures, or a PDF",
    "weigh_by": "a few general questions weigh every picture",
    **dict.fromkeys(("long_tokens", "short_tokens"), "the suite says how long answers may be"),
    **dict.fromkeys(("pack", "resume"), "what --out holds is one small file, and is gone on with"),
}
INTERRUPTED: Final = 130  # exit status after Ctrl-C
CLEANUP_S = 4.0  # that a command may take to put things in order then


class Parser(argparse.ArgumentParser):
    """A parser whose error message is one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message[:1].upper()}{message[1:]}. Try `{self.prog} --help`.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit status, 2 for a refusal; argv: its words, by default
    those of the process."""
    _open_streams()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        end_by_interrupt()
    try:
        parser = parser_for(words)
        args, unknown = parser.parse_known_args(words)
        if unknown:
            refuse(unknown)
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return args.run(args) or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.filename and error.errno not in FULL:
            reason, name = error.strerror or type(error).__name__, one_line(error.filename)
            said = f"{name} cannot be used: {reason.lower()}. Give another name or folder."
        else:
            said = public_message(error)
        print(said, file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return 2


def refuse(unknown: Sequence[str]) -> None:
    """Refuse the first flag of these that was once there, or has become an --option."""
    from rotatek.cli.settings_arguments import DRAWN  # noqa: PLC0415  # heavy, and seldom needed
    from rotatek.methods import settings  # noqa: PLC0415

    options = {key for registry in settings.REGISTRIES.values() for key in registry.options()}
    for flag in (word.partition("=")[0] for word in unknown if word.startswith("--")):
        name = flag.removeprefix("--").replace("-", "_")
        if instead := REMOVED.get(name) or settings.REMOVED.get(name):
            raise UserError(f"The flag {flag} is gone: {instead}.")
        if name in {*options, *DRAWN}:
            raise UserError(f"Write {flag} as --option {name}=VALUE.")


def _open_streams() -> None:
    """Write answers to stderr where the caller has closed stdout, and nowhere where that is closed,
    too; what the terminal's encoding cannot say is written out. No file gets the number of a closed
    stream, or what libraries print would be in it."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  # for the whole process
    sys.stdout = sys.stdout or sys.stderr
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Let what waits for a stdout that takes nothing go nowhere, when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_by_interrupt() -> None:
    """Let Ctrl-C end the process even where cleaning up never ends: an interrupt between two lines
    may leave a lock without an owner, for which others wait. A second one ends it at once."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        watch = threading.Timer(CLEANUP_S, os._exit, (INTERRUPTED,))
        watch.daemon = True
        watch.start()
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's job ignores it
        signal.signal(signal.SIGINT, interrupt)


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows every command, and the flags of the one that `words` begin with."""
    as_module = Path(sys.argv[0]).name == "__main__.py"
    prog = "python -m rotatek" if as_module else "rotatek"
    parser = Parser(prog=prog, description="Ask pictures with a compressed cache.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, help in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=f"{name}: {help}.")
        if words[:1] == [name]:
            module = import_module(f"rotatek.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser
