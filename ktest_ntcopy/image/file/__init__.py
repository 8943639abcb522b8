# SPDX-License-Identifier: GPL-2.0-only
"""Getting at the bytes of a kernel file, whatever it is packed in."""
