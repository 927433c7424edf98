"""Ray on this machine, ended by Ctrl-C. `prepare` comes before this is imported."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any, Final

import ray
from ray import serve as ray_serve
from ray.job_config import JobConfig

from rotatek.cluster import ADDRESS
from rotatek.cluster.gateway import Deployment, build
from rotatek.service.listening import past_proxies

log = logging.getLogger("rotatek")

NAME: Final = "rotatek"
LOOPBACK: Final = "127.0.0.1"


def job() -> JobConfig:
    """Workers import from this installation, and not, as Ray has it, from the folder that somebody
    happens to stand in."""
    root = Path(__file__).resolve().parents[2]
    return JobConfig(_client_job=True, _py_driver_sys_path=[str(root)])


def serve(plan: Deployment, host: str = LOOPBACK, port: int = 8000) -> None:
    """Serve a plan's application until SIGTERM or Ctrl-C, here or on the cluster at RAY_ADDRESS.

    Args:
        plan: the models and settings to serve.
        host: 0.0.0.0 opens it to the network.
        port: of page and API.
    """
    past_proxies()
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    here: dict[str, Any] = {}
    if not os.environ.get(ADDRESS):
        cpus = max(os.cpu_count() or 1, plan.most * len(plan.models))
        here = {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": LOOPBACK}
    ray.init(logging_level=logging.WARNING, log_to_driver=True, job_config=job(), **here)
    try:
        ray_serve.start("HeadOnly", http_options={"host": host, "port": port})
        try:
            ray_serve.run(build(plan), name=NAME)
            log.info("ready: http://%s:%d/", host, port)
            asked.wait()
            log.info("asked to leave: the replicas are stopped")
        finally:
            ray_serve.shutdown()
    finally:
        ray.shutdown()
