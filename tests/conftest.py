"""What holds for the whole suite."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.made_once import make_once

# Time limits of single examples say more about a busy machine than about the code.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

make_once()
