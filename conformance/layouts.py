# SPDX-License-Identifier: GPL-2.0-only
"""Which structure of ours is which of the kernel's, and where two layouts differ.

The kernel has more than one type for some of what it shares with user space.  A
``struct msghdr`` of the C library is the kernel's ``user_msghdr``; the kernel's own
``msghdr`` is internal, and has no layout that a program could know.  A 32-bit program
on a 64-bit kernel talks in ``compat_*`` types, which are looked at when Python is such
a program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from conformance.sockets import ethtool, layout
from ktest_ntcopy.image.types.typeinfo import TypeInfo


@dataclass(frozen=True)
class Place:
    """Where one member of a structure is."""

    offset: int  #: bytes
    size: int  #: bytes; 0 for a flexible array


@dataclass(frozen=True)
class Layout:
    """A structure as one witness knows it."""

    source: str  #: "BTF", "conformance.sockets", "the headers"
    size: int  #: bytes
    members: Mapping[str, Place]


@dataclass(frozen=True)
class Shape:
    """One structure under its three names."""

    ours: type[ctypes.Structure]
    kernel: str  #: of the kernel's type, without "struct"
    header: str = ""  #: file that has it, if a C program may include it
    compat: str = ""  #: the kernel's type for 32-bit programs, where that is another one
    in_c: str = ""  #: name in C, where it is not "struct <kernel>"
    kernel_names: Mapping[str, str] = field(default_factory=dict)  #: ours -> kernel's
    header_names: Mapping[str, str] = field(default_factory=dict)  #: ours -> C's
    part: bool = False  #: ours leaves out members, and maybe the end
    #: What it means that the kernel has no such type; it has to be there if this is empty.
    absent: str = ""

    @property
    def c(self) -> str:
        """What a C program calls it."""
        return self.in_c or f"struct {self.kernel}"


_TIME, _ERRORS = "linux/time_types.h", "linux/errqueue.h"
_PAD = {"sin_zero": "__pad"}
SHAPES: tuple[Shape, ...] = (
    Shape(layout.IoVec, "iovec", "sys/uio.h", "compat_iovec"),
    Shape(layout.MsgHdr, "user_msghdr", "sys/socket.h", "compat_msghdr", in_c="struct msghdr"),
    Shape(layout.MMsgHdr, "mmsghdr", "sys/socket.h", "compat_mmsghdr"),
    Shape(layout.CmsgHdr, "cmsghdr", "sys/socket.h", "compat_cmsghdr"),
    Shape(layout.SockAddr, "sockaddr", "sys/socket.h", part=True),
    Shape(
        layout.SockAddrStorage,
        "__kernel_sockaddr_storage",
        "sys/socket.h",
        in_c="struct sockaddr_storage",
        header_names={"ss_padding": "__ss_padding", "ss_align": "__ss_align"},
        part=True,
    ),
    Shape(layout.SockAddrIn, "sockaddr_in", "netinet/in.h", kernel_names=_PAD),
    Shape(layout.SockAddrIn6, "sockaddr_in6", "netinet/in.h"),
    Shape(layout.SockAddrUn, "sockaddr_un", "sys/un.h", absent="CONFIG_UNIX is not set"),
    Shape(
        layout.SockAddrVm,
        "sockaddr_vm",
        "linux/vm_sockets.h",
        absent="CONFIG_VSOCKETS is not set, or built as a module",
        # Older headers have no svm_flags: it was a part of svm_zero then.
        part=True,
    ),
    Shape(layout.OldTimeVal, "__kernel_old_timeval", _TIME, "old_timeval32"),
    Shape(layout.OldTimeSpec, "__kernel_old_timespec", _TIME, "old_timespec32"),
    Shape(layout.SockTimeVal, "__kernel_sock_timeval", _TIME),
    Shape(layout.TimeSpec, "__kernel_timespec", _TIME),
    Shape(layout.ScmTimestamping, "scm_timestamping", _ERRORS),
    Shape(layout.ScmTimestamping64, "scm_timestamping64", _ERRORS),
    Shape(layout.SoTimestamping, "so_timestamping", "linux/net_tstamp.h"),
    Shape(layout.SockExtendedErr, "sock_extended_err", _ERRORS),
    Shape(
        layout.ScmZerocopyRange,
        "scm_zerocopy_range",
        _ERRORS,
        absent="the kernel is without msg_zerocopy_uarg",
    ),
    Shape(
        layout.ScmZerocopyUarg,
        "scm_zerocopy_uarg",
        _ERRORS,
        absent="the kernel is without msg_zerocopy_uarg",
    ),
    Shape(ethtool.IfMap, "ifmap", "linux/if.h", "compat_ifmap"),
    Shape(ethtool.IfReq, "ifreq", "linux/if.h", "compat_ifreq"),
    Shape(ethtool.SsetInfo, "ethtool_sset_info", "linux/ethtool.h"),
    Shape(ethtool.GStrings, "ethtool_gstrings", "linux/ethtool.h"),
    Shape(ethtool.GetFeaturesBlock, "ethtool_get_features_block", "linux/ethtool.h"),
    Shape(ethtool.GFeatures, "ethtool_gfeatures", "linux/ethtool.h"),
    Shape(ethtool.SetFeaturesBlock, "ethtool_set_features_block", "linux/ethtool.h"),
    Shape(ethtool.SFeatures, "ethtool_sfeatures", "linux/ethtool.h"),
)


def ours(shape: Shape) -> Layout:
    """The layout that ctypes gives our structure."""
    members = {
        # ctypes knows a field by its name alone.
        name: Place(getattr(shape.ours, name).offset, getattr(shape.ours, name).size)
        for name, *_ in shape.ours._fields_
    }
    return Layout(f"ctypes ({shape.ours.__name__})", ctypes.sizeof(shape.ours), members)


def kernels(types: TypeInfo, shape: Shape, name: str) -> Layout | None:
    """The layout that the kernel gives the type ``name``, in our names for its members.

    None if the kernel has no such type.
    """
    size = types.struct_size(name)
    if size is None:
        return None
    back = {theirs: name for name, theirs in shape.kernel_names.items()}
    members = {
        back.get(member.name, member.name): Place(member.offset, member.size)
        for member in types.members(name)
        if member.name
    }
    return Layout(f"the kernel's {types.source} (struct {name})", size, members)


def differences(expected: Layout, found: Layout, name: str, *, part: bool) -> Iterator[str]:
    """One line for each thing that differs; ``name`` is the structure's.

    Members of ``expected`` that ``found`` has no name for are passed over if they lie
    where it has others (unions, reserved room); the other way round they are missed,
    unless ``found`` was said to be only a part.
    """
    if expected.size != found.size and not part:
        yield (
            f"{name}: {found.size} bytes in {found.source}, {expected.size} in {expected.source}"
        )
    for member, place in found.members.items():
        wanted = expected.members.get(member)
        if wanted is None:
            if not part:
                yield f"{name}.{member}: is in {found.source}, not in {expected.source}"
            continue
        for what in ("offset", "size"):
            one, other = getattr(place, what), getattr(wanted, what)
            if one != other:
                yield (
                    f"{name}.{member}: {what} {one} in {found.source}, {other} in {expected.source}"
                )
    if not part:
        yield from (
            f"{name}.{member}: is in {expected.source} at offset {place.offset}, "
            f"not in {found.source}"
            for member, place in expected.members.items()
            if member not in found.members and not _covered(place, found.members.values())
        )


def _covered(place: Place, others: Iterable[Place]) -> bool:
    """True if every byte of a place belongs to one of the others."""
    taken = {byte for o in others for byte in range(o.offset, o.offset + o.size)}
    return place.size > 0 and taken.issuperset(range(place.offset, place.offset + place.size))
