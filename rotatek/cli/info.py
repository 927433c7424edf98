"""`rotatek info`: versions, device, methods and models, for bug reports."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="pocket", metavar="NAME", help="model to describe")


def run(args: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415  # keeps --help quick

    from kernels.dispatch import status  # noqa: PLC0415
    from rotatek.methods.channels import CHANNELS  # noqa: PLC0415
    from rotatek.methods.tokens import TOKENS  # noqa: PLC0415
    from rotatek.models import CHECKPOINTS  # noqa: PLC0415
    from rotatek.models.families import FAMILIES  # noqa: PLC0415
    from rotatek.models.loading import card_line  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "cpu"
    print(f"python        {platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("rotatek", "torch", "transformers", "triton", "gradio", "plotly", "pillow"):
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "not installed"
        print(f"{package:<13} {found}")
    print(f"device        {device} ({name}, {torch.get_num_threads()} threads)")
    print(f"attention     {status(device).backend}")
    print(f"tokens        {', '.join(TOKENS)}")
    print(f"channels      {', '.join(CHANNELS)}")
    print(f"models        {', '.join(CHECKPOINTS)}, a folder, or a hub id")
    print(f"families      {', '.join(FAMILIES)}; others without an overlay on the picture")
    print(f"model         {card_line(args.model)}")
