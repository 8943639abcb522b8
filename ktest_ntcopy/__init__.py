# SPDX-License-Identifier: GPL-2.0-only
"""Carry, test and prove Linux kernel changes to the network send path."""

__version__ = "0.1.0"
