# SPDX-License-Identifier: GPL-2.0-only
"""Machine code: which function calls which."""
