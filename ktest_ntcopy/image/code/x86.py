# SPDX-License-Identifier: GPL-2.0-only
"""Where x86 machine code leaves its function: instruction lengths and branch targets.

Importing a full disassembler takes longer than every question about a kernel
together, and the answer needs no operands but those of branches and addresses.
So instructions are only measured.  A test holds every instruction of a real
kernel against objdump.
"""

from __future__ import annotations

from ktest_ntcopy.image.code.transfer import Transfer

# What follows an opcode, one letter for each of 256.  Numbers are bytes of an immediate.
#   .  nothing        m  ModR/M           1 2 3 6 8  immediate
#   z  immediate of operand size          n  ModR/M and 1 byte
#   Z  ModR/M and immediate of operand size
#   j  branch, 1 byte                     J  branch, operand size
#   q  immediate that may be 8 bytes      o  address, as wide as addresses are
#   p  prefix          r  REX             v  VEX, EVEX or an older instruction
#   t  another table   g  depends on ModR/M    c  register number in ModR/M
#   s  far address, operand size          x  no instruction
_ONE_64 = (
    "mmmm1zxxmmmm1zxt"  # 00
    "mmmm1zxxmmmm1zxx"  # 10
    "mmmm1zpxmmmm1zpx"  # 20
    "mmmm1zpxmmmm1zpx"  # 30
    "rrrrrrrrrrrrrrrr"  # 40
    "................"  # 50
    "xxvmppppzZ1n...."  # 60
    "jjjjjjjjjjjjjjjj"  # 70
    "nZxnmmmmmmmmmmmm"  # 80
    "..........x....."  # 90
    "oooo....1z......"  # a0
    "11111111qqqqqqqq"  # b0
    "nn2.vvnZ3.2..1x."  # c0
    "mmmmxxx.mmmmmmmm"  # d0
    "jjjj1111JJxj...."  # e0
    "p.pp..gg......mm"  # f0
)
_ONE_32 = (
    "mmmm1z..mmmm1z.t"  # 00
    "mmmm1z..mmmm1z.."  # 10
    "mmmm1zp.mmmm1zp."  # 20
    "mmmm1zp.mmmm1zp."  # 30
    "................"  # 40
    "................"  # 50
    "..vmppppzZ1n...."  # 60
    "jjjjjjjjjjjjjjjj"  # 70
    "nZnnmmmmmmmmmmmm"  # 80
    "..........s....."  # 90
    "oooo....1z......"  # a0
    "11111111qqqqqqqq"  # b0
    "nn2.vvnZ3.2..1.."  # c0
    "mmmm11..mmmmmmmm"  # d0
    "jjjj1111JJsj...."  # e0
    "p.pp..gg......mm"  # f0
)
_TWO = (
    "mmmmx.....x.xm.n"  # 0f 00
    "mmmmmmmmmmmmmmmm"  # 0f 10
    "ccccxxxxmmmmmmmm"  # 0f 20
    "......x.txtxxxxx"  # 0f 30
    "mmmmmmmmmmmmmmmm"  # 0f 40
    "mmmmmmmmmmmmmmmm"  # 0f 50
    "mmmmmmmmmmmmmmmm"  # 0f 60
    "nnnnmmm.mmxxmmmm"  # 0f 70
    "JJJJJJJJJJJJJJJJ"  # 0f 80
    "mmmmmmmmmmmmmmmm"  # 0f 90
    "...mnmmm...mnmmm"  # 0f a0
    "mmmmmmmmmmnmmmmm"  # 0f b0
    "mmnmnnnm........"  # 0f c0
    "mmmmmmmmmmmmmmmm"  # 0f d0
    "mmmmmmmmmmmmmmmm"  # 0f e0
    "mmmmmmmmmmmmmmmm"  # 0f f0
)

# Each letter as a number: how many immediate bytes, and what else is to be done.
_MODRM, _WORD, _SPECIAL, _BRANCH = 16, 32, 64, 128
_MEANING = {
    ".": 0,
    "m": _MODRM,
    "n": _MODRM | 1,
    "z": _WORD,
    "Z": _MODRM | _WORD,
    "j": _BRANCH | 1,
    "J": _BRANCH | _WORD,
    **{digit: int(digit) for digit in "1238"},
    **{letter: _SPECIAL | number for number, letter in enumerate("prvtgcqosx")},
}
_PREFIX, _REX, _VEX, _TABLE, _GROUP, _CONTROL, _QUAD, _OFFSET, _FAR, _BAD = (
    _MEANING[letter] for letter in "prvtgcqosx"
)


def _table(letters: str) -> tuple[int, ...]:
    return tuple(_MEANING[letter] for letter in letters)


_FIRST = {64: _table(_ONE_64), 32: _table(_ONE_32)}
_SECOND = _table(_TWO)
# In VEX and EVEX every instruction has ModR/M; vzeroupper (0f 77) is the exception.
_VECTOR = {
    1: tuple(0 if n == 0x77 else _MODRM | (e == _MODRM | 1) for n, e in enumerate(_SECOND)),
    2: (_MODRM,) * 256,
    3: (_MODRM | 1,) * 256,
}


def _modrm_sizes(wide: bool) -> tuple[int, ...]:
    """Bytes of ModR/M, SIB and displacement by the value of ModR/M."""
    sizes = []
    for value in range(256):
        mode, register = value >> 6, value & 7
        size = 1
        if mode < 3:
            size += wide and register == 4  # SIB
            word = 4 if wide else 2
            bare = register == (5 if wide else 6)
            size += (word if bare else 0, 1, word)[mode]
        sizes.append(size)
    return tuple(sizes)


_SIZES, _SIZES_16 = _modrm_sizes(True), _modrm_sizes(False)

# Opcodes whose operand may be an address: lea, mov $, push $, cmp $, and group ff.
_LEA, _FF = 0x8D, 0xFF
_ADDRESS_OPERANDS = frozenset((_LEA, 0xC7, 0x68, 0x81, 0x3D, _FF, *range(0xB8, 0xC0)))


def decode(
    code: bytes, address: int, *, bits: int = 64, starts: list[int] | None = None
) -> list[Transfer]:
    """The branches out of ``code``, which runs at ``address``, and the addresses it uses.

    Branches within the code are left out.  "reference" names every constant that could
    be an address: the caller knows which ones are.  ``starts``, if given, receives the
    offset of every instruction.  A byte that starts no instruction is skipped.
    """
    found: list[Transfer] = []
    first, second = _FIRST[bits], _SECOND
    mask = (1 << bits) - 1
    end = len(code)
    padded = code + bytes(16)  # so that an instruction that is cut off can be measured
    signed = int.from_bytes
    at = 0
    while at < end:
        begin = at
        if starts is not None:
            starts.append(begin)
        opcode = padded[at]
        at += 1
        entry = first[opcode]
        branch32 = word = 4
        sizes = _SIZES
        wide = False  # REX.W
        narrow = 0  # bytes of an address if it is shorter than usual
        escaped = False
        if entry & _SPECIAL:
            while entry == _PREFIX and at - begin < 15:
                if opcode == 0x66:
                    word = 2
                    if bits == 32:
                        branch32 = 2
                elif opcode == 0x67:
                    narrow = bits // 16
                    if bits == 32:
                        sizes = _SIZES_16
                opcode = padded[at]
                at += 1
                entry = first[opcode]
            if entry == _REX:
                wide = bool(opcode & 8)
                if wide:
                    word = 4
                opcode = padded[at]
                at += 1
                entry = first[opcode]
            if entry == _TABLE:
                escaped = True
                opcode = padded[at]
                at += 1
                entry = second[opcode]
                if entry == _TABLE:  # 0f 38 and 0f 3a
                    entry = _MODRM | (opcode == 0x3A)
                    opcode = padded[at]
                    at += 1
            elif entry == _VEX:
                if bits == 32 and padded[at] < 0xC0:
                    entry = _MODRM
                else:
                    escaped = True
                    space = 1 if opcode == 0xC5 else padded[at] & (7 if opcode == 0x62 else 31)
                    at += {0xC5: 1, 0xC4: 2, 0x62: 3}[opcode]
                    opcode = padded[at]
                    at += 1
                    vector = _VECTOR.get(space, _VECTOR[2])
                    entry = vector[opcode]
            if entry & _SPECIAL:
                if entry == _GROUP:
                    entry = _MODRM
                    if not padded[at] & 0x30:  # test $imm
                        entry |= _WORD if opcode & 1 else 1
                elif entry == _CONTROL:
                    at += 1
                    entry = 0
                elif entry == _QUAD:
                    entry = 8 if wide else word
                elif entry == _OFFSET:
                    at += narrow or bits // 8
                    entry = 0
                elif entry == _FAR:
                    at += word + 2
                    entry = 0
                else:  # a prefix or REX too many, or no instruction at all
                    at = begin + 1
                    continue
        if entry & _BRANCH:
            size = branch32 if entry & _WORD else 1
            at += size
            if at > end:
                break
            target = at + signed(padded[at - size : at], "little", signed=True)
            if opcode == 0xE8:
                found.append(Transfer(address + begin, "call", address + target & mask))
            elif not 0 <= target < end:
                found.append(Transfer(address + begin, "jump", address + target & mask))
            continue
        modrm = at
        if entry & _MODRM:
            value = padded[at]
            at += sizes[value]
            if value & 0xC7 == 4 and sizes is _SIZES and padded[modrm + 1] & 7 == 5:
                at += 4  # no base register but a displacement
        if entry & _WORD:
            at += word
        at += entry & 15
        if opcode in _ADDRESS_OPERANDS and not escaped and word == 4:
            # Of one instruction, code cut off at the end included, only whole ones count.
            if at > end:
                break
            _address(found, padded, address, begin, modrm, at, opcode, bits)
    return found


def _address(
    found: list[Transfer],
    code: bytes,
    address: int,
    begin: int,
    modrm: int,
    end: int,
    opcode: int,
    bits: int,
) -> None:
    """Note the address that an instruction of :data:`_ADDRESS_OPERANDS` uses, if it does."""
    mask = (1 << bits) - 1
    value = code[modrm]
    fixed: int | None = None
    if opcode in (_LEA, _FF):
        if value & 0xC7 == 5:
            fixed = int.from_bytes(code[modrm + 1 : modrm + 5], "little", signed=True)
            if bits == 64:  # relative to the next instruction
                fixed += address + end
        elif value & 0xC7 == 4 and code[modrm + 1] & 7 == 5:  # perhaps with an index
            fixed = int.from_bytes(code[modrm + 2 : modrm + 6], "little", signed=True)
        if fixed is not None:
            fixed &= mask
        if opcode == _FF:
            if value >> 3 & 7 in (2, 3, 4, 5):
                found.append(Transfer(address + begin, "indirect", fixed))
            return
    else:
        size = 8 if 0xB8 <= opcode < 0xC0 and end - modrm == 8 else 4
        fixed = int.from_bytes(code[end - size : end], "little", signed=True) & mask
    if fixed is not None:
        found.append(Transfer(address + begin, "reference", fixed))
