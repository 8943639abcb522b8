# SPDX-License-Identifier: GPL-2.0-only
"""What was found: verdicts, and how they are read from output, console and journal."""
