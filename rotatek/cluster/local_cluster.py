"""Ray on this machine, ended by Ctrl-C. `ray_environment` comes before this is imported."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import ray
import torch
from ray import serve as ray_serve
from ray.job_config import JobConfig

from rotatek.cluster.gateway import Deployment, build
from rotatek.cluster.ray_environment import ADDRESS
from rotatek.service.listening import past_proxies

log = logging.getLogger("rotatek")

NAME: Final = "rotatek"
LOOPBACK: Final = "127.0.0.1"


def job() -> JobConfig:
    """Workers import from this installation, and not, as Ray has it, from the folder that somebody
    happens to stand in."""
    root = Path(__file__).resolve().parents[2]
    return JobConfig(_client_job=True, _py_driver_sys_path=[str(root)])


@contextmanager
def started(cpus: int) -> Iterator[None]:
    """A local Ray, or the cluster at RAY_ADDRESS.

    Args:
        cpus: that Ray may think there are.
    """
    quiet = {"logging_level": logging.WARNING, "log_to_driver": True, "job_config": job()}
    if os.environ.get(ADDRESS):
        ray.init(**quiet)
    else:
        ray.init(num_cpus=cpus, include_dashboard=False, _node_ip_address=LOOPBACK, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def serve(plan: Deployment, host: str = LOOPBACK, port: int = 8000) -> None:
    """Serve a plan's application until SIGTERM or Ctrl-C.

    Args:
        plan: the models and settings to serve.
        host: 0.0.0.0 opens it to the network.
        port: of page and API.
    """
    past_proxies()
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    cpus = max(os.cpu_count() or 1, plan.most * len(plan.models))
    with started(cpus):
        ray_serve.start("HeadOnly", http_options={"host": host, "port": port})
        try:
            ray_serve.run(build(plan), name=NAME)
            log.info("ready: http://%s:%d/", host, port)
            asked.wait()
            log.info("asked to leave: the replicas are stopped")
        finally:
            ray_serve.shutdown()


def gpus_here(device: str | None) -> float:
    """GPUs of a replica: one, where there are any and none is ruled out."""
    return float(device != "cpu" and torch.cuda.is_available())
