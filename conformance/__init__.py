# SPDX-License-Identifier: GPL-2.0-only
"""What a conforming kernel shows to an application.

``pytest conformance`` asks the running kernel, ``pytest conformance --kernel=PATH``
the kernel in PATH, booted in a virtual machine whose root is a copy-on-write view
of this host's.  The tests are plain pytest tests and the same in both cases: they
use loopback only, need no privilege, and leave nothing behind.

- ``sockets`` is the C library's socket calls with typed arguments, for what
  Python's own ``socket`` cannot express: bad addresses, ``sendmmsg``, raw control
  messages.  It stands alone and may be used elsewhere.
- ``protocols`` makes connected pairs of sockets, and knows which option a kernel
  lacks when it cannot.
- ``attempts`` makes one call and notes everything that an application sees of it.
- ``test_*`` are the claims.
- ``guest`` and ``guest_reporter`` carry the tests into a virtual machine.
"""
