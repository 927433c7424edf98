"""The fixtures that all tests share, and their settings before torch and Triton are imported."""

from tests.conftest import picture

__all__ = ["picture"]
