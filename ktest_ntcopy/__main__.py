# SPDX-License-Identifier: GPL-2.0-only
"""``python -m ktest_ntcopy`` is the ``ktest-ntcopy`` command."""

import sys

try:
    from ktest_ntcopy.cli import main

    sys.exit(main())
except KeyboardInterrupt:  # before main could take it
    sys.exit(130)
