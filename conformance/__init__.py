# SPDX-License-Identifier: GPL-2.0-only
"""What a conforming kernel shows to an application.

``pytest conformance`` asks the running kernel, ``pytest conformance --kernel=PATH``
the kernel in PATH, booted in a virtual machine whose root is a copy-on-write view
of this host's.  The tests are plain pytest tests and the same in both cases: they use
loopback and network namespaces of their own, skip what the user may not do, and leave
nothing behind.  Those marked ``vmlinux`` look at the kernel's file and need no machine.

- ``sockets`` is the C library's socket calls with typed arguments, for what
  Python's own ``socket`` cannot express: bad addresses, ``sendmmsg``, raw control
  messages.  It stands alone and may be used elsewhere.
- ``protocols`` makes connected pairs of sockets, and knows which option a kernel
  lacks when it cannot.
- ``attempts`` makes one call and notes everything that an application sees of it.
- ``network``, ``pages``, ``completions`` and ``stamps`` are what the features need:
  devices, memory of a kind of page, zerocopy notifications, receive time stamps.
- ``layouts`` and ``headers`` compare structures; ``claims`` knows the documentation.
- ``features`` takes names and numbers from the feature files.
- ``test_<feature>`` show what a feature is to an application, as briefly as they can;
  ``test_documentation*``, ``test_claims`` and ``test_uapi_layout`` look at all of them.
- ``guest`` and ``guest_reporter`` carry the tests into a virtual machine.
"""
