# SPDX-License-Identifier: GPL-2.0-only
"""The ground floor: one TOML file per feature, read by everything, reading nothing."""
