"""Names of modules before the layout of 0.2: they load their successors, with a warning.

Older names of a class's methods warn, too.

To be deleted one release later.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

SUCCESSORS: Final = {
    "rotatek.analysis": "rotatek.inspect.trace_analysis",
    "rotatek.arguments": "rotatek.bridge.cache_argument",
    "rotatek.attention": "rotatek.bridge.attention",
    "rotatek.budget": "rotatek.methods.shares",
    "rotatek.cache.compressed": "rotatek.cache.rotatek_cache",
    "rotatek.cache.filling": "rotatek.cache.prefill_layer",
    "rotatek.calibration": "rotatek.methods.calibration",
    "rotatek.channels": "rotatek.methods.channels",
    "rotatek.cluster.front": "rotatek.cluster.gateway",
    "rotatek.cluster.local": "rotatek.cluster.local_cluster",
    "rotatek.cluster.ports": "rotatek.cluster.loopback_port",
    "rotatek.cluster.quiet": "rotatek.cluster.ray_environment",
    "rotatek.cluster.router": "rotatek.cluster.affinity_router",
    "rotatek.compare.live": "rotatek.compare.equal_bytes",
    "rotatek.compare.prefill": "rotatek.engine.prefill",
    "rotatek.conversation": "rotatek.engine.conversation",
    "rotatek.decode": "rotatek.engine.decode",
    "rotatek.events": "rotatek.engine.events",
    "rotatek.options": "rotatek.methods.options",
    "rotatek.page.service": "rotatek.service.service",
    "rotatek.registry": "rotatek.methods.registry",
    "rotatek.rotation": "rotatek.methods.rotation",
    "rotatek.server.call": "rotatek.server.chat_request",
    "rotatek.server.door": "rotatek.server.chat_app",
    "rotatek.server.keys": "rotatek.server.api_keys",
    "rotatek.server.process": "rotatek.server.uvicorn_server",
    "rotatek.server.runs": "rotatek.server.worker_pool",
    "rotatek.settings": "rotatek.methods.settings",
    "rotatek.tokens": "rotatek.methods.tokens",
    "rotatek.trace": "rotatek.inspect.trace",
}


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller's caller of a name that will be deleted."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)


def successor(name: str) -> str:
    """The new name of a module, or of one inside a package that moved; empty for any other."""
    whole, below = name, ""
    while whole not in SUCCESSORS and "." in whole:
        whole, _, last = whole.rpartition(".")
        below = f".{last}{below}"
    return SUCCESSORS[whole] + below if whole in SUCCESSORS else ""


class MovedModules(MetaPathFinder, Loader):
    """Finds a module by its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The successor's module under the old name; None where nothing has moved."""
        return ModuleSpec(fullname, self) if successor(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The successor itself, so that its classes exist once."""
        new = successor(spec.name)
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already; its own spec is put back."""
        module.__spec__ = self._spec


def install() -> None:
    """Add the finder of old names, once a process: a moved package's modules must not load
    twice."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
