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
