# SPDX-License-Identifier: GPL-2.0-only
"""How hypothesis runs here: what it draws may take as long as a busy machine takes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
