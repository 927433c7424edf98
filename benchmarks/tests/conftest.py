"""The fixtures that all tests share, and their settings before torch and Triton are imported."""

from tests.conftest import root

__all__ = ["root"]
