# SPDX-License-Identifier: GPL-2.0-only
"""Types: BTF, DWARF, and how they are written in C."""
