"""A process that serves the API: it loads the model, then listens, and shuts down in order."""

import logging
import signal
import sys
from types import FrameType
from typing import Final

import uvicorn

from rotatek.engine.memory import leave_for_restart
from rotatek.server.chat_app import ChatApp

log = logging.getLogger("rotatek")

FAREWELL_S: Final = 3  # for running answers to end and be sent
KEEP_ALIVE_S: Final = 75  # longer than clients keep connections: the server must not close first


class Server(uvicorn.Server):
    """Ends running answers as soon as it is asked to leave, not when they are complete."""

    api: ChatApp

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On SIGTERM, after which the exit status is 0, and Ctrl-C."""
        log.info("asked to leave: running answers are ended")
        self.api.close()
        if sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)


def serve(api: ChatApp, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Load the default model, then serve until SIGTERM or Ctrl-C.

    A lost accelerator ends the process with status 1, for a restart.

    Args:
        host: 0.0.0.0 opens it to the network.
        port: 0 for any that is free.

    Raises:
        UserError: where the model cannot be loaded.
    """
    # until uvicorn listens to it: a container's first process would not hear it at all
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    api.service.engine(api.service.models[0].name)
    api.service.on_lost = leave_for_restart
    config = uvicorn.Config(
        api.app(),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=FAREWELL_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=65_536,
    )
    server = Server(config)
    server.api = api
    server.run()
