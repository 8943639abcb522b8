# SPDX-License-Identifier: GPL-2.0-only
"""A thing that runs commands under a kernel."""
