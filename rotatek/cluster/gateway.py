"""The application: a page and an API in one process, in front of replicas of the models.

`serve run deploy/serve.yaml` starts it on a cluster, and `python -m rotatek serve --replicas N` on
this machine. The front is one process because a page's queue lives in one; it computes nothing.
"""

import logging
import os
import random
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import ray
from ray import serve
from ray.job_config import JobConfig
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.types import ASGIApp

from rotatek.cluster import ADDRESS
from rotatek.cluster.remote_engine import RemoteEngine
from rotatek.cluster.replica import Replica, stay_inside
from rotatek.methods.settings import Settings
from rotatek.server.api_keys import keys_here
from rotatek.server.chat_app import ChatApp
from rotatek.server.worker_pool import WorkerPool
from rotatek.service.listening import past_proxies
from rotatek.service.model_list import models_of
from rotatek.service.service import Service
from rotatek.service.session_store import MOST, MOST_BYTES, SessionStore

log = logging.getLogger("rotatek")

LOOPBACK: Final = "127.0.0.1"
HEAD: Final = "node:__internal_head__"  # a resource of the first node, which is never replaced


@dataclass(frozen=True)
class Deployment:
    """What a cluster serves.

    Args:
        models: names, folders or hub ids, the default first.
        least: replicas of each model.
        most: replicas of each model that a long queue may start.
        per_replica: answers at once that a replica is meant to have; more start another one.
        answers: at once in a replica; more wait there.
        queue: answers of programs that may wait, over all replicas.
        gpus: of a replica; 0 for none, a share where several fit on one.
        device: as of `rotatek.models.load`.
        graph: decode by CUDA graph.
        page: whether to serve the page, too.
        settings: defaults of the API's requests, by their flat names.
    """

    models: Sequence[str] = ("pocket",)
    least: int = 1
    most: int = 1
    per_replica: int = 8
    answers: int = 32
    queue: int = 64
    gpus: float = 0
    device: str | None = None
    graph: bool = False
    page: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)


class HomeRouter(RequestRouter):
    """Routes a request whose session is a replica's id to that replica, if it is alive and free.

    Not first in, first out over all requests: the replica that was found for one would then be
    given to another.
    """

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas, the preferred first."""
        home = "" if pending_request is None else pending_request.metadata.session_id
        kept = [one for one in candidate_replicas if one.replica_id.unique_id == home]
        others = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        return [rank for rank in (kept, others) if rank]


class Gateway:
    """The process that answers HTTP: the API and, if planned, the page."""

    def __init__(self, plan: Deployment, *handles: DeploymentHandle) -> None:
        stay_inside()
        by_source = dict(zip(plan.models, handles, strict=True))
        service = Service(models_of(plan.models), lambda source: RemoteEngine(by_source[source]))
        service.conversations = SessionStore(MOST * plan.most, MOST_BYTES * plan.most)
        workers = WorkerPool(plan.answers * plan.most, plan.queue)
        self.api = ChatApp(
            service, Settings.from_dict(plan.settings), keys_here(None), workers, has_engines=False
        )
        self._app: ASGIApp = self.api.app()
        if plan.page:
            os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
            from rotatek.page.server import beside  # noqa: PLC0415  # gradio takes seconds

            self._app = beside(self.api.routes(), service)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The application to which Ray Serve passes requests."""
        return self._app


def application(args: Mapping[str, Any]) -> serve.Application:
    """The application of a configuration's `args`, which are those of `Deployment`."""
    return build(Deployment(**args))


def build(plan: Deployment) -> serve.Application:
    """The application of a plan: one front, and replicas that grow with the queue."""
    models = [
        serve.deployment(Replica)
        .options(
            name=f"model-{number}",
            autoscaling_config={
                "min_replicas": plan.least,
                "max_replicas": plan.most,
                "initial_replicas": plan.least,
                "target_ongoing_requests": plan.per_replica,
            },
            max_ongoing_requests=1_000,  # they wait inside, where a stop reaches them
            ray_actor_options={"num_cpus": 1, "num_gpus": plan.gpus},
            request_router_config=RequestRouterConfig(request_router_class=HomeRouter),
            health_check_period_s=2,
            health_check_timeout_s=10,
            graceful_shutdown_timeout_s=5,
        )
        .bind(source, plan.device, plan.graph, plan.answers)
        for number, source in enumerate(plan.models)
    ]
    front = serve.deployment(serve.ingress()(Gateway)).options(
        name="front",
        num_replicas=1,
        max_ongoing_requests=10_000,  # API and page limit their requests themselves
        ray_actor_options={"num_cpus": 0, "resources": {HEAD: 0.001}},
        graceful_shutdown_timeout_s=5,
    )
    return front.bind(plan, *models)


def job() -> JobConfig:
    """Workers import from this installation, and not, as Ray has it, from the folder that somebody
    happens to stand in."""
    root = Path(__file__).resolve().parents[2]
    return JobConfig(_client_job=True, _py_driver_sys_path=[str(root)])


def serve_here(plan: Deployment, host: str = LOOPBACK, port: int = 8000) -> None:
    """Serve a plan's application until SIGTERM or Ctrl-C, here or on the cluster at RAY_ADDRESS.

    host: 0.0.0.0 opens it to the network.
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
        serve.start("HeadOnly", http_options={"host": host, "port": port})
        try:
            serve.run(build(plan), name="rotatek")
            log.info("ready: http://%s:%d/", host, port)
            asked.wait()
            log.info("asked to leave: the replicas are stopped")
        finally:
            serve.shutdown()
    finally:
        ray.shutdown()
