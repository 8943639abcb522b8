# SPDX-License-Identifier: GPL-2.0-only
"""Makes small kernel files that are right in every byte a reader looks at."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

BASE = 0xFFFFFFFF81000000
X86_64, AARCH64, S390, I386 = 62, 183, 22, 3
EXEC, REL, CORE = 2, 1, 4

#: A configuration with which the guest can boot.
BOOTABLE = {
    "CONFIG_BLK_DEV_INITRD": "y",
    "CONFIG_BINFMT_ELF": "y",
    "CONFIG_VIRTIO_PCI": "y",
    "CONFIG_VIRTIO_CONSOLE": "y",
}
MARKER = "copy_from_iter_nontemporal"


class Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        if not text:
            return 0
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def note(owner: bytes, kind: int, data: bytes, order: str = "<") -> bytes:
    owner += b"\0"
    sizes = struct.pack(order + "III", len(owner), len(data), kind)
    return sizes + b"".join(part + b"\0" * (-len(part) % 4) for part in (owner, data))


def btf(
    structs: Mapping[str, Sequence[str]] = {},
    enumerators: Mapping[str, int] = {},
    order: str = "<",
) -> bytes:
    """BTF with one unsigned int type, structs of such members, and one enum."""
    text = Strings()
    types = struct.pack(order + "IIII", text.add("unsigned int"), 1 << 24, 4, 32)
    for name, members in structs.items():
        info = 4 << 24 | len(members)
        types += struct.pack(order + "III", text.add(name), info, 4 * len(members))
        for number, member in enumerate(members):
            types += struct.pack(order + "III", text.add(member), 1, 32 * number)
    if enumerators:
        types += struct.pack(order + "III", 0, 1 << 31 | 6 << 24 | len(enumerators), 4)
        for name, value in enumerators.items():
            types += struct.pack(order + "Ii", text.add(name), value)
    head = struct.pack(order + "HBBI", 0xEB9F, 1, 0, 24)
    head += struct.pack(order + "IIII", 0, len(types), len(types), len(text.data))
    return head + types + text.data


def ikconfig(options: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}={value}\n" for name, value in options.items())
    return b"IKCFG_ST" + gzip.compress(lines.encode(), mtime=0) + b"IKCFG_ED"


def elf(
    *,
    machine: int = X86_64,
    kind: int = EXEC,
    bits: int = 64,
    order: str = "<",
    release: str = "6.12.117-test",
    symbols: Iterable[str] = (),
    btf_data: bytes = b"",
    config: Mapping[str, str] | None = None,
    pvh: bool = True,
    build_id: bytes = b"\x12" * 20,
    rodata: bytes = b"junk\0",
    more: Iterable[tuple[str, int, bytes]] = (),
) -> bytes:
    """An ELF file with the sections of a kernel.

    ``rodata`` comes first in that section; ``more`` are sections: name, sh_type (and 0x800
    if it is compressed), content.
    """
    if release:
        rodata += f"Linux version {release} (user@host) (gcc) #1 SMP\n\0".encode()
    if config is not None:
        rodata += ikconfig(config)
    names, table = Strings(), b""
    for number, name in enumerate(["", *symbols]):
        at, info, address = names.add(name), 0x12 if name else 0, BASE + 64 * number
        shndx = 1 if name else 0
        if bits == 64:
            table += struct.pack(order + "IBBHQQ", at, info, 0, shndx, address, 48)
        else:
            table += struct.pack(order + "IIIBBH", at, address & 0xFFFFFFFF, 48, info, 0, shndx)
    notes = note(b"GNU", 3, build_id, order) if build_id else b""
    if pvh:
        notes += note(b"Xen", 18, b"\0" * 4, order)
    sections = [("", 0, b"", 0, 0), (".rodata", 1, rodata, 0, 0), (".notes", 7, notes, 0, 0)]
    if btf_data:
        sections.append((".BTF", 1, btf_data, 0, 0))
    sections += [(name, sh_type, data, 0, 0) for name, sh_type, data in more]
    if symbols:
        entry = 24 if bits == 64 else 16
        sections.append((".symtab", 2, table, len(sections) + 1, entry))
        sections.append((".strtab", 3, names.data, 0, 0))
    return _assemble(sections, machine, kind, bits, order)


def _assemble(
    sections: list[tuple[str, int, bytes, int, int]],
    machine: int,
    kind: int,
    bits: int,
    order: str,
) -> bytes:
    text = Strings()
    named = [*sections, (".shstrtab", 3, b"", 0, 0)]
    at = [text.add(name) for name, *_ in named]
    named[-1] = (".shstrtab", 3, text.data, 0, 0)
    header, segment = (64, 56) if bits == 64 else (52, 32)
    body, headers, places = b"", b"", []
    base = header + 2 * segment
    for _, _, data, _, _ in named:
        body += b"\0" * (-len(body) % 8)
        places.append(base + len(body))
        body += data
    word = "Q" if bits == 64 else "I"
    address_mask = (1 << bits) - 1
    for (_, sh_type, data, link, entry), name_at, place in zip(named, at, places, strict=True):
        address = (BASE + place) & address_mask if sh_type == 1 else 0
        flags = 2 | sh_type & 0x800
        headers += struct.pack(
            f"{order}II{word}{word}{word}{word}II{word}{word}",
            *(name_at, sh_type & 0xFF, flags, address, place, len(data), link, 0, 4, entry),
        )
    body += b"\0" * (-len(body) % 8)
    section_at = base + len(body)
    segments = b""
    notes = next(i for i, s in enumerate(named) if s[0] == ".notes")
    for p_type, offset, size in (
        (1, 0, base + len(body)),
        (4, places[notes], len(named[notes][2])),
    ):
        if bits == 64:
            segments += struct.pack(order + "IIQQQQQQ", p_type, 4, offset, BASE, 0, size, size, 4)
        else:
            segments += struct.pack(order + "IIIIIIII", p_type, offset, 0, 0, size, size, 4, 4)
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2, 1]) + b"\0" * 9
    head = ident + struct.pack(
        f"{order}HHI{word}{word}{word}IHHHHHH",
        *(kind, machine, 1, 0, header, section_at, 0, header),
        *(segment, 2, 64 if bits == 64 else 40, len(named), len(named) - 1),
    )
    return head + segments + body + headers


def bzimage(
    release: str = "6.12.117-test", *, flags: int = 1, payload: bytes = b"\x90" * 4096
) -> bytes:
    """A boot sector, four of set-up code with the release in it, and a payload."""
    payload += b"\0" * (-len(payload) % 16)
    head = bytearray(512 * 5)
    head[0x1F1] = 4
    struct.pack_into("<I", head, 0x1F4, len(payload) // 16)
    struct.pack_into("<H", head, 0x1FE, 0xAA55)
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x206, 0x20F)
    struct.pack_into("<H", head, 0x20E, 0x400)
    struct.pack_into("<H", head, 0x236, flags)
    text = f"{release} (user@host) #1 SMP".encode()
    head[0x600 : 0x600 + len(text)] = text
    struct.pack_into("<II", head, 0x248, 0, len(payload))
    return bytes(head) + payload


def with_feature(*, members: bool = True) -> bytes:
    """A kernel that shows everything that msg_ntcopy leaves."""
    names = [MARKER, "sock_sendmsg_ntcopy", "copy_to_nontemporal", "_copy_from_iter"]
    structs = {"iov_iter": ["count", "nontemporal"], "proto": ["close", "ntcopy"]}
    return elf(symbols=names, btf_data=btf(structs) if members else b"", config=BOOTABLE)


def without_feature() -> bytes:
    """A kernel from before msg_ntcopy."""
    return elf(
        symbols=["copy_to_nontemporal", "_copy_from_iter"],
        btf_data=btf({"iov_iter": ["count"], "proto": ["close"]}),
        config=BOOTABLE,
    )


def build_dir(folder: Path, image: bytes, *, release: str = "6.12.117-test") -> Path:
    """A build directory as make leaves it."""
    (folder / "include/config").mkdir(parents=True)
    (folder / "include/config/kernel.release").write_text(release + "\n")
    lines = "".join(f"{k}={v}\n" for k, v in BOOTABLE.items())
    (folder / ".config").write_text(lines)
    (folder / "vmlinux").write_bytes(image)
    return folder
