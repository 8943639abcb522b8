# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's machine code calls: proof that one function reaches another.

Functions are decoded one at a time, when a question needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from ktest_ntcopy.image.code import arm64, large, x86
from ktest_ntcopy.image.code.alternatives import Alternatives, read_alternatives
from ktest_ntcopy.image.code.functions import Functions
from ktest_ntcopy.image.code.initialised import Initialised
from ktest_ntcopy.image.code.transfer import Kind, Transfer
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.names.nearest import nearest
from ktest_ntcopy.image.names.symbols import Symbol, SymbolTable, stem

_CODE_LIMIT = 128 << 10  # bytes decoded of one function; real ones stay far below
_TOTAL_LIMIT = 1 << 20  # bytes decoded for one question: a third of a second
_PARTS_LIMIT = 64  # parts of one function
_HINT = 200  # functions searched to say in a failure what leads there instead

# Through these a jump or call goes to what a register holds, or returns.
_INDIRECT = ("__x86_indirect_", "__indirect_thunk_start")
_RETURN = "_return_thunk"
# These hold a jump to the function that is really meant.
_STATIC = "__SCT__"
_VENEERS = ("_veneer", "Thunk_")
# In nearly every function, so no help to a reader.
_NOISE = (
    *("__fentry__", "mcount", "_mcount", "__x86_", "__stack_chk_fail", "__cfi_"),
    *("__sanitizer_", "__asan_", "__kasan_", "__ubsan_", "__kcsan_", "__tsan_", "__kmsan_"),
    *("_printk", "__warn_printk", "rcu_read_", "__rcu_read_"),
)


class Call(NamedTuple):
    """One place where code leaves its function or takes an address."""

    at: int  #: address of the instruction
    kind: Kind  #: "jump" is a tail call; "reference" an address taken, for a later call
    target: int | None  #: address, None for an indirect call
    name: str | None  #: function there as its author wrote it, None if there is none
    via: str = ""  #: what lies between: "static call", "alternative", or a pointer's name


@dataclass(frozen=True)
class CodePath:
    """Answer to whether ``source`` reaches ``target``."""

    source: str
    target: str
    found: bool | None  #: None if the file cannot tell; ``detail`` says what it lacks
    detail: str  #: one line: the chain with addresses, or where and why it breaks
    steps: tuple[tuple[str, Call], ...] = ()  #: each function of the chain and its call
    complete: bool = True  #: False if the search gave up at its limit: no proof of absence
    look: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False)

    @property
    def nearest(self) -> tuple[str, ...]:
        """Names like the one that is missing, best first.  Takes a while to find."""
        return self.look()


class CodeError(ValueError):
    """The file cannot answer; one line that says why."""


class CodePaths:
    """The calls between the functions of one kernel.

    Every method raises ConfigError where the file itself is damaged.
    """

    def __init__(self, elf: Elf, symbols: SymbolTable) -> None:
        self._elf = elf
        self._functions = Functions(symbols)
        self._decoded: dict[int, tuple[Call, ...]] = {}
        self._resolved: dict[tuple[int, Kind], Call | None] = {}
        self._left = 0  # bytes that may still be decoded for the question in hand

    @cached_property
    def _alternatives(self) -> Alternatives:
        return read_alternatives(self._elf)

    def calls(self, function: str) -> tuple[Call, ...]:
        """All calls, tail calls and address references of a function, by address.

        The compiler's parts of it (``.cold``, ``.part.0``…) belong to it.  Raises
        CodeError if there is no such function or no decoder for the architecture.
        """
        self._begin()
        entries = self._functions.named(function)
        if not entries:
            raise CodeError(self._absent(function))
        found = {call for entry in entries for call in self._calls(entry)}
        data = Initialised(self._elf, self._functions.symbols)
        named = (
            c._replace(target=None, via=data.name_at(c.target))
            if c.kind == "indirect" and c.target
            else c
            for c in found
        )
        return tuple(sorted(named, key=lambda call: (call.at, call.kind, call.name or "")))

    def path(
        self,
        source: str,
        target: str,
        *,
        through: Sequence[str] = (),
        limit: int = 500,
    ) -> CodePath:
        """The shortest chain of calls from ``source`` to ``target``.

        With ``through``, only these functions may lie between, in this order, and an
        address that is taken of one of them passes for a call, as with callbacks.  Whether
        a compiler inlines a function is its choice, so one of them may be missing where
        the one before it directly calls one after it; ``detail`` says so.

        Without, calls are searched breadth first through at most ``limit`` functions.
        """
        try:
            self._begin()
            if not self._functions.named(source):
                look = partial(self._functions.symbols.alike, source)
                return CodePath(source, target, False, self._absent(source), look=look)
            steps, complete = self._search(source, target, limit, through)
            if steps:
                return self._there(source, target, steps, through)
            return self._not_there(source, target, through, limit, complete)
        except CodeError as err:
            return CodePath(source, target, None, str(err))

    def pointer(self, symbol: str, offset: int, *, prefer: str = "") -> str | None:
        """Name of the function that an initialised structure points to.

        ``offset`` is in bytes from the start of the variable.  None for a null pointer.
        Of several names of one function ``prefer`` is given, if it is among them.
        Raises CodeError if there is no such variable, or its value is set at run time.
        """
        try:
            address = Initialised(self._elf, self._functions.symbols).pointer(symbol, offset)
        except ValueError as err:
            raise CodeError(str(err)) from err
        if not address:
            return None
        if any(s.address == address for s in self._functions.entries(prefer)):
            return prefer
        there = self._functions.at(address)
        if there is None or there.type != "func":
            raise CodeError(f"{symbol}+{offset:#x} holds {address:#x}, where no function begins")
        return stem(there.name)

    # Decoding

    def _begin(self) -> None:
        """Begin a question.  Raises CodeError if the machine code cannot be read."""
        self._left = _TOTAL_LIMIT
        if self._elf.machine not in ("EM_X86_64", "EM_386", "EM_AARCH64"):
            raise CodeError(f"{self._elf.path}: no decoder for {self._elf.arch} machine code")
        if self._elf.kind == "ET_REL":
            raise CodeError(f"{self._elf.path}: not linked, so its calls lead nowhere yet")

    def _transfers(self, code: bytes, address: int) -> list[Transfer]:
        if self._elf.machine == "EM_AARCH64":
            return arm64.decode(code, address)
        if self._elf.bits == 64 and large.MOVABS.search(code):
            starts: list[int] = []
            found = x86.decode(code, address, starts=starts)
            return large.resolve(code, address, found, starts, self._is_function)
        return x86.decode(code, address, bits=self._elf.bits)

    def _is_function(self, address: int) -> bool:
        there = self._functions.at(address)
        return there is not None and there.type == "func"

    def _calls(self, entry: Symbol) -> tuple[Call, ...]:
        """What one function calls, from all of its parts that it reaches."""
        done = self._decoded.get(entry.address)
        if done is None:
            done = self._decoded[entry.address] = tuple(self._walk(entry))
        return done

    def _walk(self, entry: Symbol) -> Iterator[Call]:
        own = stem(entry.name)
        parts, seen = [entry], {entry.address}
        while parts:
            part = parts.pop()
            for transfer, via in self._part(part):
                call = self._resolve(transfer, via)
                if call is None:
                    continue
                if call.name == own and call.kind != "reference" and call.target is not None:
                    there = self._functions.at(call.target) or self._functions.around(call.target)
                    if there and there.address not in seen and len(seen) < _PARTS_LIMIT:
                        seen.add(there.address)
                        parts.append(there)
                    if there and (there.name != entry.name or call.kind != "call"):
                        continue
                yield call

    def _part(self, part: Symbol) -> Iterator[tuple[Transfer, str]]:
        size = min(self._functions.size(part), _CODE_LIMIT)
        self._left -= size
        if self._left < 0:
            raise CodeError(
                f"{self._elf.path}: gave up after {_TOTAL_LIMIT >> 20} MiB of machine code, at "
                f"{part.name}; name functions on the way"
            )
        for transfer in self._transfers(self._elf.at(part.address, size), part.address):
            yield transfer, ""
        for other in self._alternatives.within(part.address, size):
            code = self._elf.at(other.replacement, other.replacement_size)
            for transfer in self._transfers(code, other.replacement):
                if transfer.target is None or not 0 <= transfer.target - part.address < size:
                    yield transfer._replace(at=other.at), "alternative"

    def _resolve(self, transfer: Transfer, via: str) -> Call | None:
        """The function behind a branch or an address; None if it is not of interest."""
        at, kind, target = transfer
        if kind == "indirect" or target is None:
            return Call(at, "indirect", target, None, via)
        key = (target, kind)
        if key not in self._resolved:  # few functions are called by many
            self._resolved[key] = self._lead(kind, target)
        call = self._resolved[key]
        return call and Call(at, call.kind, call.target, call.name, call.via or via)

    def _lead(self, kind: Kind, target: int) -> Call | None:
        """The same for whatever leads there, as from address 0."""
        there = self._functions.at(target)
        if kind == "reference":
            if there is None or there.type != "func":
                return None
            return Call(0, kind, target, stem(there.name))
        if there is None:
            there = self._functions.around(target)
            return Call(0, kind, target, stem(there.name) if there else None)
        if there.name.endswith(_RETURN):
            return None
        if there.name.startswith(_INDIRECT):
            return Call(0, "indirect", None, None)
        static = there.name.startswith(_STATIC)
        if static or (there.name.startswith("__") and any(v in there.name for v in _VENEERS)):
            end = self._behind(there)
            if end is not None:
                via = "static call" if static else "veneer"
                return Call(0, kind, end.address, stem(end.name), via)
        return Call(0, kind, target, stem(there.name))

    def _behind(self, trampoline: Symbol) -> Symbol | None:
        """Where a trampoline leads in the file; None if nowhere."""
        code = self._elf.at(trampoline.address, min(self._functions.size(trampoline), 32))
        for transfer in self._transfers(code, trampoline.address):
            if transfer.kind in ("jump", "reference") and transfer.target is not None:
                return self._functions.at(transfer.target)
        return None

    # Searching

    def _search(
        self, source: str, target: str, limit: int, through: Sequence[str] | None
    ) -> tuple[list[tuple[str, Call]], bool]:
        """The shortest chain, empty if there is none; and whether no call was left to follow.

        With ``through``, only through these names, and only onwards.
        """
        kinds = ("call", "jump", "reference") if through else ("call", "jump")
        ends = {s.address for s in self._functions.entries(target)}
        if not ends:
            return [], True
        rank = {
            symbol.address: number
            for number, name in enumerate(through or (), 1)
            for symbol in self._functions.entries(name)
        }
        queue = list(self._functions.named(source))
        came: dict[int, tuple[int, str, Call] | None] = {e.address: None for e in queue}
        count = limit + len(queue)
        while queue and len(came) <= count:
            following: list[Symbol] = []
            for function in queue:
                name = stem(function.name)
                for call in self._calls(function):
                    if call.kind not in kinds or call.target is None or call.name is None:
                        continue
                    if call.target in ends or call.name == target:
                        return [*_trace(came, function.address), (name, call)], True
                    if call.target in came:
                        continue
                    if through and rank.get(call.target, 0) <= rank.get(function.address, 0):
                        continue
                    there = self._functions.at(call.target) or self._functions.around(call.target)
                    if there is not None:
                        came[call.target] = (function.address, name, call)
                        following.append(there)
            queue = following
        return [], not queue

    # Explaining

    def _there(
        self,
        source: str,
        target: str,
        steps: list[tuple[str, Call]],
        through: Sequence[str],
    ) -> CodePath:
        words = [steps[0][0]]
        for _, call in steps:
            how = {"jump": "jumps", "reference": "address taken"}.get(call.kind, "")
            notes = ", ".join(n for n in (how, call.via, f"at {call.at:#x}") if n)
            words.append(f"-> {call.name} ({notes})")
        passed = {call.target for _, call in steps}
        entries = {name: {s.address for s in self._functions.entries(name)} for name in through}
        inlined = [name for name, own in entries.items() if not own]
        skipped = [name for name, own in entries.items() if own and own.isdisjoint(passed)]
        also = f"; inlined: {', '.join(inlined)}" if inlined else ""
        also += f"; not through {', '.join(skipped)}" if skipped else ""
        return CodePath(source, target, True, " ".join(words) + also, tuple(steps))

    def _absent(self, *names: str) -> str:
        others = [(n, hits[0]) for n in names if (hits := self._functions.symbols.find(n))]
        if others:
            return "; ".join(f"{name} is no function but of type {s.type}" for name, s in others)
        return f"no function {', '.join(names)} (not built, or inlined wherever it is called)"

    def _not_there(
        self, source: str, target: str, through: Sequence[str], limit: int, complete: bool
    ) -> CodePath:
        """Say what the last function that is reached really calls."""
        last, following = source, (*through, target)
        for number, name in enumerate(through):
            if self._search(source, name, limit, through[:number] or (name,))[0]:
                last, following = name, (*through[number + 1 :], target)
        calls = [c for e in self._functions.named(last) for c in self._calls(e)]
        said = f"{last} calls {_listed(calls)}"
        absent = [name for name in following if not self._functions.named(name)]
        there = [name for name in following if name not in absent]
        said += f"; not {' or '.join(there)}" if there else ""
        if any(c.kind == "reference" and c.name in following for c in calls):
            said += ", but takes its address"
        if target not in absent:
            if not through:
                bound = "" if complete else f" within {limit} functions"
                said = f"{source} does not reach {target}{bound}; {said}"
            elif other := self._search(last, target, _HINT, None)[0]:
                said += f"; but there is {' -> '.join([name for name, _ in other])} -> {target}"
        said += f"; {self._absent(*absent)}" if absent else ""
        if target in absent:
            look = partial(self._functions.symbols.alike, target)
        else:
            called = {c.name for c in calls if c.name}
            look = partial(nearest, following[0], called)
        answer = None if self._may_call(calls, following) else False
        if answer is None:
            said += ", and whether to call it cannot be told (-mcmodel=large)"
        return CodePath(source, target, answer, said, complete=complete, look=look)

    def _may_call(self, calls: Sequence[Call], names: Sequence[str]) -> bool:
        """Whether the address of one of these is loaded as for a call, but none was found."""
        return any(
            c.kind == "reference"
            and c.name in names
            and self._elf.machine == "EM_X86_64"
            and large.is_movabs(self._elf.at(c.at, 2))
            for c in calls
        )


def _trace(came: dict[int, tuple[int, str, Call] | None], address: int) -> list[tuple[str, Call]]:
    """The steps that led to an address."""
    steps: list[tuple[str, Call]] = []
    while (step := came[address]) is not None:
        address, name, call = step
        steps.append((name, call))
    return steps[::-1]


def _listed(calls: Sequence[Call], count: int = 12) -> str:
    """The functions called, in order, for one line."""
    names = dict.fromkeys(
        c.name
        for c in sorted(calls, key=lambda c: c.at)
        if c.name and c.kind != "reference" and not c.name.startswith(_NOISE)
    )
    indirect = sum(c.kind == "indirect" for c in calls)
    few = list(names)[:count]
    more = [f"{len(names) - count} more"] if len(names) > count else []
    pointers = [f"{indirect} through pointers"] if indirect else []
    return ", ".join([*few, *more, *pointers]) or "nothing"
