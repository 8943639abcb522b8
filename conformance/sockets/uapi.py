# SPDX-License-Identifier: GPL-2.0-only
"""Numbers of Linux's user API that Python's ``socket`` does not have.

Those of <asm-generic/socket.h> hold on all architectures but alpha, mips, parisc and
sparc.  ``tests`` hold every number against the headers and against the kernel's types.
"""

from __future__ import annotations

import enum
import socket

MSG_ERRQUEUE = int(socket.MSG_ERRQUEUE)
MSG_ZEROCOPY = 0x4000000


class So(enum.IntEnum):
    """Options of SOL_SOCKET; control messages bear the number of their option."""

    TIMESTAMP_OLD = 29
    TIMESTAMPNS_OLD = 35
    TIMESTAMPING_OLD = 37
    MEMINFO = 55
    ZEROCOPY = 60
    TIMESTAMP_NEW = 63
    TIMESTAMPNS_NEW = 64
    TIMESTAMPING_NEW = 65


class Sof(enum.IntFlag):
    """Bits of SO_TIMESTAMPING, SOF_TIMESTAMPING_* in C."""

    TX_HARDWARE = 1 << 0
    TX_SOFTWARE = 1 << 1
    RX_HARDWARE = 1 << 2
    RX_SOFTWARE = 1 << 3
    SOFTWARE = 1 << 4
    SYS_HARDWARE = 1 << 5
    RAW_HARDWARE = 1 << 6
    OPT_ID = 1 << 7
    TX_SCHED = 1 << 8
    TX_ACK = 1 << 9
    OPT_CMSG = 1 << 10
    OPT_TSONLY = 1 << 11
    OPT_STATS = 1 << 12
    OPT_PKTINFO = 1 << 13
    OPT_TX_SWHW = 1 << 14
    BIND_PHC = 1 << 15
    OPT_ID_TCP = 1 << 16
    OPT_RX_FILTER = 1 << 17


class MemInfo(enum.IntEnum):
    """Index of a number of bytes in what SO_MEMINFO returns, SK_MEMINFO_* in C."""

    WMEM_ALLOC = 2
    OPTMEM = 6


IP_RECVERR = 11
IP_RECVTTL = 12
IPV6_RECVERR = 25
SO_EE_ORIGIN_TIMESTAMPING = 4
SO_EE_ORIGIN_ZEROCOPY = 5
SO_EE_CODE_ZEROCOPY_COPIED = 1
