# SPDX-License-Identifier: GPL-2.0-only
"""Names and addresses: symbols, exports, and names that are nearly right."""
