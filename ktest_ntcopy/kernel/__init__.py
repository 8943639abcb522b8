# SPDX-License-Identifier: GPL-2.0-only
"""From nothing to a kernel: obtain source, apply a series, configure, build."""
