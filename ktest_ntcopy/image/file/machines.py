# SPDX-License-Identifier: GPL-2.0-only
"""Machine types of ELF files, and what ``uname -m`` says on each."""

from __future__ import annotations

#: e_machine -> its name in elf.h, and what ``uname -m`` says, as far as Linux has it.
MACHINES = {
    2: ("EM_SPARC", "sparc"),
    3: ("EM_386", "i686"),
    4: ("EM_68K", "m68k"),
    8: ("EM_MIPS", "mips"),
    15: ("EM_PARISC", "parisc"),
    20: ("EM_PPC", "ppc"),
    21: ("EM_PPC64", "ppc64"),
    22: ("EM_S390", "s390x"),
    40: ("EM_ARM", "armv7l"),
    42: ("EM_SH", "sh"),
    43: ("EM_SPARCV9", "sparc64"),
    62: ("EM_X86_64", "x86_64"),
    94: ("EM_XTENSA", "xtensa"),
    183: ("EM_AARCH64", "aarch64"),
    189: ("EM_MICROBLAZE", "microblaze"),
    243: ("EM_RISCV", "riscv64"),
    258: ("EM_LOONGARCH", "loongarch64"),
    0x9026: ("EM_ALPHA", "alpha"),
}

#: What uname -m says of the rarer byte order or width: (name, bits, little endian).
VARIANTS = {
    ("EM_AARCH64", 64, False): "aarch64_be",
    ("EM_ARM", 32, False): "armv7b",
    ("EM_PPC64", 64, True): "ppc64le",
    ("EM_MIPS", 64, True): "mips64",
    ("EM_MIPS", 64, False): "mips64",
    ("EM_RISCV", 32, True): "riscv32",
    ("EM_S390", 32, False): "s390",
    ("EM_PARISC", 64, False): "parisc64",
}
