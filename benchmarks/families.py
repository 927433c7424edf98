"""What becomes of every image-text-to-text class that the installed transformers knows."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from transformers import __version__ as transformers_version
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from tests.walk.outcome import outcome

PACKAGES: Final = ("torchvision", "timm", "scipy")  # that the processors or towers of some need


def families() -> dict[str, Any]:
    """A row a model type: its class, its group, and the sentence of a refusal; and the versions of
    the packages that some classes need, where they are installed."""
    rows = []
    for kind, made in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items():
        found = outcome(kind)
        rows.append({"type": kind, "class": made, "group": found.group, "sentence": found.sentence})
    packages = {name: _version(name) for name in PACKAGES}
    return {
        "transformers": transformers_version,
        "packages": {name: number for name, number in packages.items() if number},
        "classes": rows,
    }


def _version(package: str) -> str:
    """A package's version, without its build; nothing where it is not installed."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return ""
