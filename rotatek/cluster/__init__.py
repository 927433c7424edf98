"""Beyond one process, on Ray: replicas of a model behind one page and one API.

`replica` answers with a model of its own, and defines what processes exchange; `remote_engine` is
an engine for page and API whose answers are computed by replicas. If a replica is lost, another one
answers. `gateway` builds the application, in which a follow-up goes to the replica that holds its
cache, and runs it on this machine.

Ray reads its environment when it is imported: call `prepare` before. Nothing is reported to Ray's
makers, and Ray opens no dashboard. Its own ports are bound to loopback where the cluster is this
machine; on a cluster of several, Ray asks for its token there.
"""

import os
from typing import Final

ADDRESS: Final = "RAY_ADDRESS"  # of a cluster that runs already
QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # 5 s are short on a busy machine
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}
# Without it Ray chooses an address that other machines reach, and listens on all of them.
ALONE: Final = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def prepare() -> None:
    """Set the variables that the environment does not; call before anything imports Ray. The
    cluster is this machine, unless RAY_ADDRESS names another."""
    own = {} if os.environ.get(ADDRESS) else ALONE
    for name, value in (QUIET | own).items():
        os.environ.setdefault(name, value)
