"""A port that Ray Serve opens in every replica, bound to this machine."""

import importlib
import logging
import os
from typing import Any, Final

log = logging.getLogger("rotatek")

USED: Final = "RAY_SERVE_USE_GRPC_BY_DEFAULT"  # only then does anybody call that port
EVERYWHERE: Final = "[::]"


def stay_inside() -> None:
    """Bind this replica's gRPC port to loopback; called while the replica is being made.

    Serve (2.60) opens it on every interface, without TLS or token unless the cluster has TLS, and
    reads pickles from it. Nothing here uses it: calls go through Ray's own ports, which require
    the cluster's token.
    """
    if os.environ.get(USED) == "1":
        return
    module: Any = importlib.import_module("ray.serve._private.replica")
    opened = getattr(module, "add_port_to_grpc_server", None)
    if opened is None:
        log.warning("this Ray opens its replicas' ports in another way: check what listens")
        return
    if getattr(opened, "stays_inside", False):
        return

    def bind(server: Any, address: str, *rest: Any, **options: Any) -> Any:
        return opened(server, address.replace(EVERYWHERE, "127.0.0.1"), *rest, **options)

    bind.stays_inside = True  # type: ignore[attr-defined]
    module.add_port_to_grpc_server = bind
