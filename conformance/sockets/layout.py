# SPDX-License-Identifier: GPL-2.0-only
"""The structures of socket calls, as Linux and glibc lay them out."""

from __future__ import annotations

import ctypes


class IoVec(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = [
        ("iov_base", ctypes.c_void_p),
        ("iov_len", ctypes.c_size_t),
    ]


class MsgHdr(ctypes.Structure):
    """``struct msghdr``."""

    _fields_ = [
        ("msg_name", ctypes.c_void_p),
        ("msg_namelen", ctypes.c_uint32),
        ("msg_iov", ctypes.POINTER(IoVec)),
        ("msg_iovlen", ctypes.c_size_t),
        ("msg_control", ctypes.c_void_p),
        ("msg_controllen", ctypes.c_size_t),
        ("msg_flags", ctypes.c_int),
    ]


class MMsgHdr(ctypes.Structure):
    """``struct mmsghdr``."""

    _fields_ = [
        ("msg_hdr", MsgHdr),
        ("msg_len", ctypes.c_uint),
    ]


class CmsgHdr(ctypes.Structure):
    """``struct cmsghdr``; its data follows at :func:`conformance.sockets.cmsg.align`."""

    _fields_ = [
        ("cmsg_len", ctypes.c_size_t),
        ("cmsg_level", ctypes.c_int),
        ("cmsg_type", ctypes.c_int),
    ]


class SockAddr(ctypes.Structure):
    """``struct sockaddr``, as far as all families share it."""

    _fields_ = [
        ("sa_family", ctypes.c_uint16),
    ]


class SockAddrIn(ctypes.Structure):
    """``struct sockaddr_in``; port and address are in network byte order."""

    _fields_ = [
        ("sin_family", ctypes.c_uint16),
        ("sin_port", ctypes.c_uint8 * 2),
        ("sin_addr", ctypes.c_uint8 * 4),
        ("sin_zero", ctypes.c_uint8 * 8),
    ]


class SockAddrIn6(ctypes.Structure):
    """``struct sockaddr_in6``; port, flow label and address are in network byte order."""

    _fields_ = [
        ("sin6_family", ctypes.c_uint16),
        ("sin6_port", ctypes.c_uint8 * 2),
        ("sin6_flowinfo", ctypes.c_uint8 * 4),
        ("sin6_addr", ctypes.c_uint8 * 16),
        ("sin6_scope_id", ctypes.c_uint32),
    ]


class SockAddrUn(ctypes.Structure):
    """``struct sockaddr_un``."""

    _fields_ = [
        ("sun_family", ctypes.c_uint16),
        ("sun_path", ctypes.c_uint8 * 108),
    ]


class SockAddrVm(ctypes.Structure):
    """``struct sockaddr_vm``; all in host byte order."""

    _fields_ = [
        ("svm_family", ctypes.c_uint16),
        ("svm_reserved1", ctypes.c_uint16),
        ("svm_port", ctypes.c_uint32),
        ("svm_cid", ctypes.c_uint32),
        ("svm_flags", ctypes.c_uint8),
        ("svm_zero", ctypes.c_uint8 * 3),
    ]


class SockAddrStorage(ctypes.Structure):
    """``struct sockaddr_storage``: room for any address, aligned as a pointer."""

    _fields_ = [
        ("ss_family", ctypes.c_uint16),
        ("ss_padding", ctypes.c_uint8 * (128 - 2 - ctypes.sizeof(ctypes.c_void_p))),
        ("ss_align", ctypes.c_void_p),
    ]


class OldTimeVal(ctypes.Structure):
    """``struct __kernel_old_timeval``, of SO_TIMESTAMP_OLD."""

    _fields_ = [
        ("tv_sec", ctypes.c_long),
        ("tv_usec", ctypes.c_long),
    ]


class SockTimeVal(ctypes.Structure):
    """``struct __kernel_sock_timeval``, of SO_TIMESTAMP_NEW."""

    _fields_ = [
        ("tv_sec", ctypes.c_int64),
        ("tv_usec", ctypes.c_int64),
    ]


class OldTimeSpec(ctypes.Structure):
    """``struct __kernel_old_timespec``, of SO_TIMESTAMPNS_OLD."""

    _fields_ = [
        ("tv_sec", ctypes.c_long),
        ("tv_nsec", ctypes.c_long),
    ]


class TimeSpec(ctypes.Structure):
    """``struct __kernel_timespec``, of SO_TIMESTAMPNS_NEW."""

    _fields_ = [
        ("tv_sec", ctypes.c_int64),
        ("tv_nsec", ctypes.c_int64),
    ]


class ScmTimestamping(ctypes.Structure):
    """``struct scm_timestamping``, of SO_TIMESTAMPING_OLD: software, nothing, hardware."""

    _fields_ = [
        ("ts", OldTimeSpec * 3),
    ]


class ScmTimestamping64(ctypes.Structure):
    """``struct scm_timestamping64``, of SO_TIMESTAMPING_NEW: software, nothing, hardware."""

    _fields_ = [
        ("ts", TimeSpec * 3),
    ]


class SoTimestamping(ctypes.Structure):
    """``struct so_timestamping``, the long form of what SO_TIMESTAMPING is set to."""

    _fields_ = [
        ("flags", ctypes.c_int),
        ("bind_phc", ctypes.c_int),
    ]


class SockExtendedErr(ctypes.Structure):
    """``struct sock_extended_err``, of IP_RECVERR and its relatives."""

    _fields_ = [
        ("ee_errno", ctypes.c_uint32),
        ("ee_origin", ctypes.c_uint8),
        ("ee_type", ctypes.c_uint8),
        ("ee_code", ctypes.c_uint8),
        ("ee_pad", ctypes.c_uint8),
        ("ee_info", ctypes.c_uint32),
        ("ee_data", ctypes.c_uint32),
    ]


class ScmZerocopyRange(ctypes.Structure):
    """``struct scm_zerocopy_range``: calls ``lo`` to ``hi`` are complete."""

    _fields_ = [
        ("lo", ctypes.c_uint32),
        ("hi", ctypes.c_uint32),
        ("code", ctypes.c_uint32),
    ]


class ScmZerocopyUarg(ctypes.Structure):
    """``struct scm_zerocopy_uarg``; as many ranges follow as there is room for."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("range", ScmZerocopyRange * 0),
    ]
