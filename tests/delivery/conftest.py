"""Servers and figures, as in the end-to-end tests."""

from __future__ import annotations

from tests.e2e.conftest import launch, measured

__all__ = ["launch", "measured"]
