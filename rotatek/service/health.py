"""The content of `/health`, for page and API."""

from typing import Any

import rotatek
from rotatek.service.service import Service


def report_of(service: Service) -> dict[str, Any]:
    """status "ready", "loading" or "failed"; per loaded model its device, what computes its
    attention, and why."""
    models = {name: engine.health() for name, engine in service.loaded().items()}
    status = "ready" if service.models[0].name in models else "loading"
    if service.failure or not all(health.able for health in models.values()):
        status = "failed"
    return {
        "status": status,
        "version": rotatek.__version__,
        "reason": service.failure,
        "models": {
            name: {
                "device": health.device,
                "attention": health.attention,
                "reason": health.reason,
            }
            for name, health in models.items()
        },
    }
