# SPDX-License-Identifier: GPL-2.0-only
"""Find kernel complaints ("splats") in console lines.

A splat starts at a line from :data:`_HEADERS` and reaches to its end marker, to the
next heading or to a silence.  What follows a heading is taken along generously: only
headings decide what is found, so a line too many in an excerpt does no harm, while a
report that is cut short hides its cause.

Headings are anchored at the start of the message, after the printk prefix.  That is
what tells ``BUG: ...`` from "DEBUG: ..." and a kernel fault from a user program's
("traps: a.out[7] general protection fault").
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ktest_ntcopy.machine.base import ConsoleLine


class Kind(enum.StrEnum):
    """What the kernel complains about."""

    PANIC = "panic"
    OOPS = "oops"  #: the kernel faulted
    BUG = "bug"  #: BUG() or a "BUG:" report without a kind of its own
    WARNING = "warning"
    KASAN = "kasan"
    KCSAN = "kcsan"
    KMSAN = "kmsan"
    KFENCE = "kfence"
    UBSAN = "ubsan"
    SLAB = "slab"  #: SLUB's own debugging
    LOCKDEP = "lockdep"
    ATOMIC = "atomic"  #: sleeping or scheduling where it is forbidden
    RCU_STALL = "rcu stall"
    LOCKUP = "lockup"  #: soft, hard or workqueue
    HUNG_TASK = "hung task"
    LEAK = "leak"  #: kmemleak, ref_tracker, a network device that cannot go
    TRACE = "trace"  #: a call trace whose heading was lost
    OOM = "oom"  #: the out-of-memory killer ran
    ALLOCATION = "allocation"  #: an allocation failed and was reported
    DUMP = "dump"  #: somebody asked for it through sysrq

    @property
    def serious(self) -> bool:
        """False for what memory pressure or a request explains, true for defects."""
        return self not in (Kind.OOM, Kind.ALLOCATION, Kind.DUMP)


@dataclass(frozen=True, kw_only=True)
class Splat:
    """One complaint.

    ``fingerprint`` is the same for the same complaint in another run: it is made of
    the kind, the heading without numbers and the innermost functions of the trace.
    """

    kind: Kind
    title: str
    lines: tuple[str, ...]  #: with their printk prefix, at most LINES_MAX
    fingerprint: str  #: 12 hexadecimal digits
    time: float  #: host clock of the first line, see ConsoleLine
    trace: tuple[str, ...] = ()  #: function names, innermost first

    @property
    def serious(self) -> bool:
        return self.kind.serious


#: Lines kept per splat and splats kept per call; the console of a dying kernel is a flood.
LINES_MAX = 400
SPLATS_MAX = 256
#: Silence on the guest's clock that ends a splat, in seconds.  Backtraces asked for by
#: NMI come this late.
_SILENCE = 10.0
_FRAMES = 5
#: Lines that may stand between "cut here" and the heading.
_PENDING_MAX = 8

# "<4>" appears with console_msg_format=syslog, "[  T12]" or "[    C0]" with PRINTK_CALLER.
_PRINTK = re.compile(r"(?:<[0-9]{1,3}>)?\[ *([0-9]{1,9}\.[0-9]{3,6})\](?:\[ *[TC][0-9]+\])? ?")

_WARN_612 = r"CPU: [0-9]+ (?:UID: [0-9]+ )?PID: [0-9]+ at (?P<at612>\S+)(?: (?P<fn612>\S+))?"
_WARN_73 = r"(?P<at73>\S+:[0-9]+) at (?P<fn73>[^\s,]+), CPU#[0-9]+"

# Order matters: the first that matches names the kind.
_HEADERS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (Kind.DUMP, r"sysrq: (?:Show|Changing|This sysrq)"),
        (Kind.PANIC, r"Kernel panic - not syncing"),
        (Kind.KASAN, r"BUG: KASAN: "),
        (Kind.KCSAN, r"BUG: KCSAN: "),
        (Kind.KMSAN, r"BUG: KMSAN: "),
        (Kind.KFENCE, r"BUG: KFENCE: "),
        (Kind.UBSAN, r"UBSAN: "),
        (Kind.SLAB, r"BUG \S+ \((?:Not tainted|Tainted)"),
        (Kind.LOCKUP, r"(?:watchdog: )?BUG: (?:soft lockup|workqueue lockup)"),
        (Kind.LOCKUP, r"(?:NMI )?watchdog: (?:CPU[0-9]+: )?Watchdog detected hard LOCKUP"),
        (Kind.ATOMIC, r"BUG: (?:scheduling while atomic|sleeping function called|using \S+ in p)"),
        (Kind.LOCKDEP, r"WARNING: (?:possible |suspicious RCU|inconsistent lock state|chain_key)"),
        (Kind.LOCKDEP, r"WARNING: (?:held lock|lock held|Nested lock|bad unlock|bad contention)"),
        (Kind.LOCKDEP, r"WARNING: (?:\S+-safe -> \S+-unsafe|\S+ still has locks held)"),
        (Kind.LOCKDEP, r"\[ BUG: |INFO: (?:possible |suspicious RCU|trying to register non-)"),
        (Kind.LOCKDEP, r"BUG: (?:MAX_LOCK|MAX_STACK_TRACE)"),
        (Kind.OOPS, r"BUG: (?:kernel NULL pointer|unable to handle|.*stack guard page)"),
        (Kind.OOPS, r"Unable to handle kernel |Internal error: |Unhandled fault|SError Interrupt"),
        (Kind.OOPS, r"Oops: |Oops\[#|Kernel (?:stack overflow|mode fault)|stack-protector: "),
        (Kind.OOPS, r"Insufficient stack space to handle exception"),
        (Kind.BUG, r"kernel BUG at |(?:\S+: )?BUG: "),
        (Kind.BUG, r"(?:\S+: )?Attempt to release (?:TCP|alive inet) socket"),
        (Kind.OOPS, r".{1,160}: [0-9a-f]{1,16} \[#[0-9]+\]"),
        (Kind.WARNING, rf"WARNING: (?:{_WARN_612}|{_WARN_73})"),
        (Kind.RCU_STALL, r"(?:rcu: )?INFO: \S+ (?:self-)?detected (?:expedited )?stall"),
        (Kind.RCU_STALL, r"(?:rcu: )?(?:INFO: )?\S+ kthread (?:starved|timer wakeup)"),
        (Kind.HUNG_TASK, r"INFO: task \S.*blocked (?:for more than|in I/O wait for)"),
        (Kind.LEAK, r"kmemleak: [0-9]+ new suspected|unreferenced object 0x"),
        (Kind.LEAK, r"ref_tracker: |leaked reference"),
        (Kind.LEAK, r"(?:\S+: )?unregister_netdevice: waiting for "),
        (Kind.ALLOCATION, r".{1,64}: page allocation failure: "),
        (Kind.OOM, r".{1,64} invoked oom-killer: |(?:Memory cgroup o|O)ut of memory: Killed "),
        (Kind.TRACE, r"Call [Tt]race:"),
    )
)
#: A cheap test that every heading and "cut here" pass; most lines fail it.
_MAYBE = re.compile(
    r"BUG|UBSAN|WARNING|INFO: |Kernel |panic|Oops|Unable to|Internal error|Unhandled|SError"
    r"|\[#|watchdog|stall|kthread|kmemleak|unreferenced|ref_tracker|leaked|unregister_netdev"
    r"|Insufficient|Attempt to rel|allocation failure|oom-killer|ut of memory|Call [Tt]race"
    r"|sysrq: |stack-prot|\[ cut here"
)
# Part of a report that is already open, a report of its own otherwise.
_SECONDARY = re.compile(
    r"Call [Tt]race:|Oops: |Oops\[#|Internal error: |leaked reference|unreferenced object"
    r"|ref_tracker: |.{1,160}: [0-9a-f]{1,16} \[#[0-9]+\]"
    r"|(?:rcu: )?(?:INFO: )?\S+ kthread (?:starved|timer)"
)
# The same for a harmless report, which must not swallow a fault that follows it.
_SECONDARY_HARMLESS = re.compile(r"Call [Tt]race:|(?:Memory cgroup o|O)ut of memory: Killed ")
_END = re.compile(r"---\[ end (?:trace|Kernel panic)")
_RULE = re.compile(r"={20,}$")
# Complete with this line.
_LAST_LINE = re.compile(
    r"(?:\S+: )?unregister_netdevice: |kmemleak: |(?:Memory cgroup o|O)ut of memory: Killed "
)

_FRAME = re.compile(r"\s*(?:\[<[0-9a-f]+>\] )?(\? )?([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+")
_PC = re.compile(r"(?:RIP: [0-9a-f]+:|pc : )([A-Za-z_][\w.]*)\+0x")
_BETWEEN = re.compile(r"\s*<|(?:RIP|RSP|RAX|RDX|RBP|R[01][0-9]|FS|CS|CR[0-9]|Code): ?")
# Functions that report a fault rather than cause it.
_REPORTERS = re.compile(
    r"(?:__|do_|_)?(?:dump_stack|show_stack|show_regs|show_trace|dump_backtrace|print_report"
    r"|kasan_|kcsan_|kmsan_|kfence_|check_bug|report_bug|handle_bug|warn|die|panic|exc_|asm_exc"
    r"|asm_sysvec|fault|page_fault_oops|ubsan_|__ubsan_|debug_|lockdep_|check_noncircular"
    r"|print_circular|print_usage_bug|mark_lock|validate_chain|lock_acquire|sched_show_task|lock_release"
    r"|nmi_|el1|do_undefinstr|bug_handler|brk_handler|rcu_dump|rcu_check|fixup_exception"
    r"|sysrq_|handle_sysrq|dump_header|oom_kill|out_of_memory|might_resched|might_sleep"
    r"|should_fail|schedule_bug|noise)"
)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,16}\b|[0-9]+", re.IGNORECASE)
_OFFSET = re.compile(r"\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?")


def strip_printk(text: str) -> tuple[str, float | None]:
    """Split a console line into the message and the guest's time stamp, if it has one.

    Whatever stands before the stamp is dropped: it is user space that left its line
    unfinished on the same console.
    """
    found = _PRINTK.search(text)
    if found is None:
        return text, None
    return text[found.end() :], float(found[1])


def detect(lines: Iterable[ConsoleLine]) -> tuple[Splat, ...]:
    """All splats in console lines, in order; at most :data:`SPLATS_MAX`.

    Never raises; time is linear in the length of the lines.
    """
    finder = _Finder()
    for line in lines:
        finder.feed(line)
        if len(finder.splats) >= SPLATS_MAX:
            break
    return finder.finish()


def serious(splats: Iterable[Splat], allowed: Sequence[str] = ()) -> tuple[Splat, ...]:
    """The splats that speak against the kernel.

    ``allowed`` holds fingerprints, or regular expressions searched for in the title;
    a test that provokes a splat on purpose lists it there.  Raises re.error for a
    pattern that is none.
    """
    patterns = [re.compile(a) for a in allowed]
    return tuple(
        s
        for s in splats
        if s.serious
        and s.fingerprint not in allowed
        and not any(p.search(s.title) for p in patterns)
    )


@dataclass
class _Open:
    """A report that still grows."""

    kind: Kind
    title: str
    time: float
    lines: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    stamp: float | None = None
    where: str = ""

    @property
    def asserted(self) -> bool:
        """True for BUG(): the invalid opcode that follows is only its mechanism."""
        return self.title.startswith("kernel BUG")


class _Finder:
    def __init__(self) -> None:
        self.splats: list[Splat] = []
        self._open: _Open | None = None
        #: A "cut here" line and what follows it, until its heading comes.
        self._pending: list[tuple[str, str]] = []

    def feed(self, line: ConsoleLine) -> None:
        current = self._open
        if current is None and not self._pending and not _MAYBE.search(line.text):
            return
        message, stamp = strip_printk(line.text)
        if current and stamp is not None:
            if current.stamp is not None and stamp - current.stamp > _SILENCE:
                self._close()
                current = None
            else:
                current.stamp = stamp
        if _MAYBE.search(message):
            if current and _belongs(message, current):
                if current.kind is Kind.BUG and "[#" in message and not current.asserted:
                    current.kind = Kind.OOPS
            elif header := _heading(message):
                self._close()
                current = self._start(header, message, line, stamp)
        if "[ cut here ]" in message and message.startswith("---"):
            self._close()
            self._pending = [(line.text, "")]
            return
        if current is None:
            if 0 < len(self._pending) <= _PENDING_MAX:
                self._pending.append((line.text, message))
            else:
                self._pending = []
            return
        if len(current.lines) < LINES_MAX:
            current.lines.append(line.text)
            current.messages.append(message)
        # KASAN and its kin close with a rule; lockdep opens with one after its heading.
        rule = current.kind is not Kind.LOCKDEP and len(current.lines) > 2
        if _END.match(message) or _LAST_LINE.match(message) or (rule and _RULE.match(message)):
            self._close()

    def finish(self) -> tuple[Splat, ...]:
        self._close()
        return tuple(self.splats)

    def _start(
        self,
        header: tuple[Kind, re.Match[str]],
        message: str,
        line: ConsoleLine,
        stamp: float | None,
    ) -> _Open:
        kind, match = header
        title = message.strip()[:300]
        where = ""
        if kind is Kind.WARNING:
            groups = match.groupdict()
            place = _OFFSET.sub("", groups["at612"] or groups["at73"] or "")
            function = _OFFSET.sub("", groups["fn612"] or groups["fn73"] or "")
            title = f"WARNING at {place} {function}".strip()
            # Line numbers move with every patch; file and function do not.
            where = f"{place.rpartition(':')[0] or place} {function}"
            # WARN(condition, "text") prints its text between "cut here" and the heading.
            text = " ".join(m.strip() for _, m in self._pending if m.strip())[:200]
            title = f"{title}: {text}" if text else title
        self._open = _Open(kind, title, line.time, stamp=stamp, where=where)
        self._open.lines.extend(text for text, _ in self._pending)
        self._pending = []
        return self._open

    def _close(self) -> None:
        current, self._open = self._open, None
        if current is None:
            return
        trace = _trace(current.messages)
        key = [current.kind.value, current.where or _anonymous(current.title), *trace[:_FRAMES]]
        self.splats.append(
            Splat(
                kind=current.kind,
                title=current.title,
                lines=tuple(current.lines),
                fingerprint=hashlib.sha256("\n".join(key).encode()).hexdigest()[:12],
                time=current.time,
                trace=trace,
            )
        )


def _belongs(message: str, report: _Open) -> bool:
    """True if this heading is a part of the open report rather than a new one."""
    pattern = _SECONDARY if report.kind.serious else _SECONDARY_HARMLESS
    return pattern.match(message) is not None


def _heading(message: str) -> tuple[Kind, re.Match[str]] | None:
    for kind, pattern in _HEADERS:
        if match := pattern.match(message):
            return kind, match
    return None


def _anonymous(title: str) -> str:
    """The title without what differs from run to run."""
    return _NUMBERS.sub("N", _OFFSET.sub("", title))


def _trace(messages: Sequence[str]) -> tuple[str, ...]:
    """Functions of the first call trace, innermost first, without the reporting ones.

    A "?" marks a frame that the unwinder only guessed; such frames count only if there
    are no others, as in a kernel built without an unwinder.
    """
    sure: list[str] = []
    guessed: list[str] = []
    fault: list[str] = []
    inside = ended = False
    for message in messages:
        # Behind the trace stand the registers of user space or of other processors.
        if not fault and not inside and (pc := _PC.match(message)) and not _REPORTERS.match(pc[1]):
            fault = [pc[1]]
        if message.startswith(("Call Trace:", "Call trace:")):
            ended = inside
            inside = True
        elif inside and not ended:
            frame = _FRAME.match(message)
            if frame is None:
                # "<TASK>", "<IRQ>" and the registers of an exception lie between frames.
                ended = not _BETWEEN.match(message)
            elif not _REPORTERS.match(frame[2]):
                (guessed if frame[1] else sure).append(frame[2])
    frames = sure or guessed
    return tuple(frames if frames[:1] == fault else fault + frames)
