"""A cluster of two nodes on this machine, and a random model that every process can load."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotatek.cluster import prepare

ROOT = Path(__file__).resolve().parents[2]
prepare()  # before a test's module imports Ray, which reads it then


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray and gradio leave sockets and loops to the collector, in this folder only."""
    left = pytest.mark.filterwarnings("ignore")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(left)


class Nodes:
    """Two nodes of one CPU each; the first one is this process's and the front's."""

    def __init__(self, elsewhere: Path) -> None:
        os.environ["PYTHONPATH"] = str(ROOT)
        import ray
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.add()
        from rotatek.cluster.gateway import job

        (elsewhere / "random.py").write_text("raise SystemExit\n")  # never imported
        with contextlib.chdir(elsewhere):
            ray.init(address=self.cluster.address, log_to_driver=False, job_config=job())

    def add(self) -> None:
        """Another node."""
        self.second = self.cluster.add_node(num_cpus=1)

    def kill(self) -> None:
        """The second node with all its workers, which would live on for a moment without it."""
        import psutil

        raylets = [psutil.Process(one.process.pid) for one in self.second.all_processes["raylet"]]
        workers = [own for one in raylets for own in one.children(recursive=True)]
        for process in [*raylets, *workers]:
            process.kill()

    def bury(self) -> None:
        """Wait until the cluster knows that the second node is gone."""
        self.cluster.remove_node(self.second, allow_graceful=False)

    def close(self) -> None:
        """End all processes."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("elsewhere"))
    yield nodes
    nodes.close()
