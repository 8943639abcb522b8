# SPDX-License-Identifier: GPL-2.0-only
"""Features of network devices through the ethtool ioctl: read them, switch them."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import sys
from dataclasses import dataclass

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSSET_INFO = 0x1B, 0x37
ETHTOOL_GFEATURES, ETHTOOL_SFEATURES = 0x3A, 0x3B
ETH_SS_FEATURES = 4
ETH_GSTRING_LEN = 32
#: Bit of what switching returns: the device cannot do what it was told.
ETHTOOL_F_UNSUPPORTED = 1
_WORD = 32  # features in one block


class IfMap(ctypes.Structure):
    """``struct ifmap``, the longest thing that an ``ifreq`` can hold."""

    _fields_ = [
        ("mem_start", ctypes.c_ulong),
        ("mem_end", ctypes.c_ulong),
        ("base_addr", ctypes.c_ushort),
        ("irq", ctypes.c_ubyte),
        ("dma", ctypes.c_ubyte),
        ("port", ctypes.c_ubyte),
    ]


class IfReqValue(ctypes.Union):
    """The second half of ``struct ifreq``, as far as it is needed here."""

    _fields_ = [
        ("ifru_flags", ctypes.c_short),
        ("ifru_data", ctypes.c_void_p),
        ("ifru_map", IfMap),
    ]


class IfReq(ctypes.Structure):
    """``struct ifreq``: the name of a device, and a value."""

    _fields_ = [
        ("ifr_ifrn", ctypes.c_char * 16),
        ("ifr_ifru", IfReqValue),
    ]


class SsetInfo(ctypes.Structure):
    """``struct ethtool_sset_info``; a length follows for each bit of the mask."""

    _fields_ = [
        ("cmd", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("sset_mask", ctypes.c_uint64),
        ("data", ctypes.c_uint32 * 0),
    ]


class GStrings(ctypes.Structure):
    """``struct ethtool_gstrings``; ``len`` strings of ETH_GSTRING_LEN bytes follow."""

    _fields_ = [
        ("cmd", ctypes.c_uint32),
        ("string_set", ctypes.c_uint32),
        ("len", ctypes.c_uint32),
        ("data", ctypes.c_uint8 * 0),
    ]


class GetFeaturesBlock(ctypes.Structure):
    """``struct ethtool_get_features_block``: 32 features, one bit each."""

    _fields_ = [
        ("available", ctypes.c_uint32),
        ("requested", ctypes.c_uint32),
        ("active", ctypes.c_uint32),
        ("never_changed", ctypes.c_uint32),
    ]


class GFeatures(ctypes.Structure):
    """``struct ethtool_gfeatures``; ``size`` blocks follow."""

    _fields_ = [
        ("cmd", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("features", GetFeaturesBlock * 0),
    ]


class SetFeaturesBlock(ctypes.Structure):
    """``struct ethtool_set_features_block``: which of 32 features to set, and to what."""

    _fields_ = [
        ("valid", ctypes.c_uint32),
        ("requested", ctypes.c_uint32),
    ]


class SFeatures(ctypes.Structure):
    """``struct ethtool_sfeatures``; ``size`` blocks follow."""

    _fields_ = [
        ("cmd", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("features", SetFeaturesBlock * 0),
    ]


@dataclass(frozen=True)
class State:
    """One feature of one device."""

    available: bool  #: it can be switched
    requested: bool
    active: bool
    fixed: bool  #: "never changed" in the header: no device of this kind can switch it


class Device:
    """A network device of the namespace that this was made in.

    Every method raises the OSError of its ioctl, as with Python's ``fcntl``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def close(self) -> None:
        """Give the socket back that the ioctls go to."""
        self._socket.close()

    def _ioctl(self, command: ctypes.Array[ctypes.c_char]) -> int:
        value = IfReqValue(ifru_data=ctypes.addressof(command))
        request = bytearray(IfReq(self.name.encode(), value))
        return int(fcntl.ioctl(self._socket, SIOCETHTOOL, request))

    def names(self) -> tuple[str, ...]:
        """The names of all features this kernel knows, by number; some may be empty."""
        info = _room(SsetInfo(cmd=ETHTOOL_GSSET_INFO, sset_mask=1 << ETH_SS_FEATURES), 4)
        self._ioctl(info)
        count = int.from_bytes(info.raw[ctypes.sizeof(SsetInfo) :], sys.byteorder)
        wanted = GStrings(cmd=ETHTOOL_GSTRINGS, string_set=ETH_SS_FEATURES, len=count)
        strings = _room(wanted, count * ETH_GSTRING_LEN)
        self._ioctl(strings)
        raw = strings.raw[ctypes.sizeof(GStrings) :]
        cut = (raw[i * ETH_GSTRING_LEN :][:ETH_GSTRING_LEN] for i in range(count))
        return tuple(text.partition(b"\0")[0].decode(errors="replace") for text in cut)

    def states(self) -> tuple[State, ...]:
        """What is to be said of each feature, in the order of :meth:`names`."""
        count = len(self.names())
        blocks = -(-count // _WORD)
        answer = _room(
            GFeatures(cmd=ETHTOOL_GFEATURES, size=blocks),
            blocks * ctypes.sizeof(GetFeaturesBlock),
        )
        self._ioctl(answer)
        found = (GetFeaturesBlock * blocks).from_buffer(answer, ctypes.sizeof(GFeatures))

        def state(number: int) -> State:
            block, bit = found[number // _WORD], 1 << number % _WORD
            words = (block.available, block.requested, block.active, block.never_changed)
            return State(*(bool(word & bit) for word in words))

        return tuple(map(state, range(count)))

    def switch(self, number: int, on: bool) -> int:
        """Switch one feature; 0, or bits ETHTOOL_F_* that say what did not become of it."""
        blocks = -(-len(self.names()) // _WORD)
        command = _room(
            SFeatures(cmd=ETHTOOL_SFEATURES, size=blocks),
            blocks * ctypes.sizeof(SetFeaturesBlock),
        )
        block = (SetFeaturesBlock * blocks).from_buffer(command, ctypes.sizeof(SFeatures))
        block[number // _WORD].valid = 1 << number % _WORD
        block[number // _WORD].requested = int(on) << number % _WORD
        return self._ioctl(command)


def _room(head: ctypes.Structure, length: int) -> ctypes.Array[ctypes.c_char]:
    """A structure with ``length`` bytes of zeros behind it."""
    return ctypes.create_string_buffer(bytes(head), ctypes.sizeof(head) + length)
