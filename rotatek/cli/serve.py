"""`rotatek serve`: the OpenAI chat API."""

import argparse
import logging
import os
from importlib.util import find_spec
from pathlib import Path

from rotatek.cli.settings_arguments import add_settings, settings_of
from rotatek.cluster import prepare
from rotatek.errors import SettingError, UserError
from rotatek.methods.settings import USUAL, Settings
from rotatek.service.listening import check_address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", action="append", metavar="NAME",
        help="pocket, a folder, or a hub id; may be given several times, the default first",
    )  # fmt: skip
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, or auto for several GPUs")
    parser.add_argument("--graph", action="store_true", help="decode by CUDA graph (GPU only)")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 opens it to the network")
    parser.add_argument("--port", type=int, default=8000, metavar="N")
    parser.add_argument(
        "--api-keys", type=Path, metavar="FILE", help="one a line; also ROTATEK_API_KEYS=KEY,..."
    )
    parser.add_argument("--answers", type=int, default=32, metavar="N", help="at once")
    parser.add_argument("--queue", type=int, default=64, metavar="N", help="that may wait")
    parser.add_argument(
        "--replicas", type=int, metavar="N", help="of each model, on Ray, together with the page"
    )
    parser.add_argument("--gpus", type=float, metavar="F", help="of a replica; 1 where there are")
    add_settings(parser, USUAL.channels.form)
    parser.epilog = "The compression options are the defaults of requests without options."


def run(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    for name, least in (("answers", 1), ("queue", 0), ("replicas", 1)):
        given = getattr(args, name)
        if given is not None and given < least:
            raise SettingError(f"--{name}", f"a whole number from {least}", given)
    check_address(args.host, args.port)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if args.replicas is not None:
        return replicas(args, settings)
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "prometheus_client")):
        raise UserError("The API is not installed. Install rotatek[serve].")
    from rotatek.engine.engine import Engine  # noqa: PLC0415  # keeps --help quick
    from rotatek.server.api_keys import keys_here  # noqa: PLC0415
    from rotatek.server.chat_app import ChatApp  # noqa: PLC0415
    from rotatek.server.uvicorn_server import serve  # noqa: PLC0415
    from rotatek.server.worker_pool import WorkerPool  # noqa: PLC0415
    from rotatek.service.model_list import models_of  # noqa: PLC0415
    from rotatek.service.service import Service  # noqa: PLC0415

    offered = models_of(args.model or ["pocket"])
    service = Service(offered, lambda source: Engine(source, args.device, graphs=args.graph))
    keys = keys_here(args.api_keys)
    api = ChatApp(service, settings, keys, WorkerPool(args.answers, args.queue))
    logging.getLogger("rotatek").info(
        "loading %s, then http://%s:%d/v1%s", offered[0].name, args.host, args.port,
        "" if keys else " (no API key is asked for)",
    )  # fmt: skip
    serve(api, args.host, args.port)


def replicas(args: argparse.Namespace, settings: Settings) -> None:
    """The page and the API in front of several processes, on this machine or on a Ray cluster."""
    if find_spec("ray") is None:
        raise UserError("--replicas needs Ray. Install rotatek[cluster], or leave it out.")
    prepare()
    if any(find_spec(name) is None for name in ("gradio", "plotly")):
        raise UserError("Replicas are served together with the page. Install rotatek[app].")
    import torch  # noqa: PLC0415  # heavy

    from rotatek.cluster.gateway import Deployment, serve_here  # noqa: PLC0415
    from rotatek.server.api_keys import VARIABLE, keys_here, keys_of  # noqa: PLC0415

    logging.getLogger("rotatek").setLevel(logging.INFO)  # Ray quietens the root
    keys_here(args.api_keys)  # refused here, if at all
    if args.api_keys is not None:
        before = os.environ.get(VARIABLE, "").split(",")
        os.environ[VARIABLE] = ",".join([*filter(None, before), *keys_of(args.api_keys)])
    one_each = float(args.device != "cpu" and torch.cuda.is_available())
    plan = Deployment(
        models=tuple(args.model or ["pocket"]),
        least=args.replicas,
        most=args.replicas,
        answers=args.answers,
        queue=args.queue,
        gpus=one_each if args.gpus is None else args.gpus,
        device=args.device,
        graph=args.graph,
        settings=settings.as_dict(),
    )
    serve_here(plan, args.host, args.port)
