# SPDX-License-Identifier: GPL-2.0-only
"""How hypothesis runs here: what it draws may take as long as a busy machine takes.

Every run draws the same, so that a change is judged by the change; `make fuzz` looks further.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", _PATIENT, derandomize=True)
settings.register_profile("fuzz", _PATIENT, max_examples=1000, database=None, print_blob=True)
settings.load_profile("steady")
