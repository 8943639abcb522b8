# SPDX-License-Identifier: GPL-2.0-only
"""Read KTAP as kselftest programs and the kselftest runner print it.

Accepted format, one line each, below any nesting prefix::

    TAP version 13 | KTAP version 1
    1..N             or  1..0 # SKIP reason
    ok N name        or  not ok N name
    ok N name # DIRECTIVE reason
    Bail out! reason

Anything else is a diagnostic and belongs to the verdict that follows it, because
that is the order in which the harness prints.  A nested level shows either as
indentation (KUnit) or as a ``# `` prefix (the kselftest runner), to any mixture
of the two; its verdicts become the children of the next verdict one level up.

The text comes from a guest that may lie, so nothing is repaired: a verdict whose
number is not planned is left out and reported as a :class:`Problem`.  Parsing
never raises and takes time linear in the length of the text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Longest nesting prefix that is still taken for nesting, in characters.
_PREFIX_MAX = 64
#: Problems kept per document; a flood of bad lines must not become a flood of problems.
_PROBLEMS_MAX = 50

_PREFIX = re.compile(r"(?:#?[ \t])*")
_VERSION = re.compile(r"(K?TAP) version ([0-9]{1,4})\s*$")
_PLAN = re.compile(r"1\.\.([0-9]{1,9})(?:\s+#\s*(?:skip\b:?)?\s*(.*))?\s*$", re.IGNORECASE)
# A number is required: without it "ok then" in free text would be a verdict.
_POINT = re.compile(r"(not )?ok +([0-9]{1,9})(?:\s+(.*))?$")
_BAIL = re.compile(r"Bail out!\s*(.*)$")
_DIRECTIVE = re.compile(
    r"(?:^|\s)#\s*(?:(skip|xfail|xpass|todo|timeout|error)(?:ped)?:?(?=\s|$)|(exit)=)\s*",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"(?:^|\s)#\s")


class Directive(enum.StrEnum):
    """The word after ``#`` on a verdict line."""

    NONE = ""
    SKIP = "SKIP"
    XFAIL = "XFAIL"
    XPASS = "XPASS"
    TODO = "TODO"
    TIMEOUT = "TIMEOUT"  #: the runner's; the reason holds the limit
    ERROR = "ERROR"  #: ksft_test_result_error()
    EXIT = "EXIT"  #: the runner's ``exit=N``; the reason holds N


class Flaw(enum.StrEnum):
    """Ways in which a document contradicts itself."""

    NO_PLAN = "no plan"
    SECOND_PLAN = "second plan"
    SECOND_HEADER = "second header"
    UNPLANNED = "unplanned verdict"
    DUPLICATE = "duplicate number"
    MISSING = "missing verdicts"
    ORPHANS = "subtests without a parent"
    BAIL_OUT = "bail out"
    MORE = "more problems"


@dataclass(frozen=True)
class Problem:
    """One contradiction, with the line (counted from 1; 0 for the whole text) it shows at."""

    flaw: Flaw
    message: str
    line: int = 0
    level: int = 0  #: 0 for the program's own verdicts, 1 and up for nested ones


@dataclass(frozen=True, kw_only=True)
class Point:
    """One verdict line and what was printed before it."""

    number: int
    name: str
    ok: bool
    directive: Directive = Directive.NONE
    reason: str = ""  #: what follows the directive, or a plain comment
    diagnostics: tuple[str, ...] = ()  #: without the level's prefix and leading "# "
    children: tuple[Point, ...] = ()
    line: int = 0  #: counted from 1


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A nested level whose parent's verdict never came: its program was cut off."""

    plan: int | None = None
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """All verdicts of one program (or of one collection of the runner)."""

    version: str = ""  #: "TAP 13", "KTAP 1", empty if there was no version line
    plan: int | None = None
    plan_skip: str | None = None  #: reason of "1..0 # SKIP reason", None if none was given
    points: tuple[Point, ...] = ()
    problems: tuple[Problem, ...] = ()
    bail_out: str | None = None  #: reason, may be empty
    diagnostics: tuple[str, ...] = ()  #: printed after the last verdict
    unfinished: Unfinished | None = None  #: the first nested level, if the text ends inside

    def named(self, name: str) -> tuple[Point, ...]:
        """All points of the outermost level with this name."""
        return tuple(p for p in self.points if p.name == name)

    def walk(self) -> Iterator[tuple[tuple[str, ...], Point]]:
        """Every point at every level with its path of names, parents first."""
        stack: list[tuple[tuple[str, ...], Point]] = []
        stack.extend(((p.name,), p) for p in reversed(self.points))
        while stack:
            path, point = stack.pop()
            yield path, point
            stack.extend(((*path, c.name), c) for c in reversed(point.children))


def parse(text: str) -> Document:
    """Read the output of one program.  A second header inside it is a problem."""
    documents = parse_all(text)
    first = documents[0]
    if len(documents) == 1:
        return first
    again = Problem(Flaw.SECOND_HEADER, "a second version line starts the numbering again")
    last = documents[-1]
    return Document(
        version=first.version,
        plan=first.plan,
        plan_skip=first.plan_skip,
        points=tuple(p for d in documents for p in d.points),
        problems=(again, *(p for d in documents for p in d.problems))[: _PROBLEMS_MAX + 1],
        bail_out=next((d.bail_out for d in documents if d.bail_out is not None), None),
        diagnostics=last.diagnostics,
        unfinished=last.unfinished,
    )


def parse_all(text: str) -> tuple[Document, ...]:
    """Read output in which the header may come again, as the 6.12 runner prints it.

    Returns at least one document.
    """
    parser = _Parser()
    # Not splitlines(): form feeds or U+2028 in a test's output do not end a line.
    for number, line in enumerate(text.split("\n"), 1):
        parser.feed(number, line.rstrip("\r"))
    return parser.finish()


def split_directive(rest: str) -> tuple[str, Directive, str]:
    """Split what follows the number into name, directive and reason."""
    found = _DIRECTIVE.search(rest)
    plain = _COMMENT.search(rest)
    # The first "#" ends the name: "name # text # SKIP" is a comment, not a skip.
    if found and (plain is None or found.start() <= plain.start()):
        word = (found[1] or found[2]).upper()
        return rest[: found.start()].strip(), Directive(word), rest[found.end() :].strip()
    if plain:
        return rest[: plain.start()].strip(), Directive.NONE, rest[plain.end() :].strip()
    return rest.strip(), Directive.NONE, ""


@dataclass
class _Level:
    """One open nesting level."""

    prefix: str
    version: str = ""
    plan: int | None = None
    plan_skip: str | None = None
    points: list[Point] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    children: list[Point] = field(default_factory=list)  #: closed, their parent still to come
    diagnostics: list[str] = field(default_factory=list)
    bail_out: str | None = None

    @property
    def touched(self) -> bool:
        return bool(self.version or self.points) or self.plan is not None


class _Parser:
    """Line by line; keeps a stack of levels whose prefixes grow strictly."""

    def __init__(self) -> None:
        self._stack = [_Level("")]
        self._documents: list[Document] = []
        self._problems: list[Problem] = []
        self._dropped = 0
        self._dropped_level = 0

    def feed(self, number: int, line: str) -> None:
        if not line:
            return
        match = _PREFIX.match(line)
        end = match.end() if match else 0
        body = line[end:]
        # The first letters decide; most lines of a flood are gone after this test.
        if end > _PREFIX_MAX or not body.startswith(
            ("ok ", "not ok ", "1..", "TAP ", "KTAP ", "B")
        ):
            self._text(line)
            return
        prefix = line[:end]
        if point := _POINT.match(body):
            self._point(self._enter(prefix), number, point)
        elif plan := _PLAN.match(body):
            self._plan(self._enter(prefix), number, plan)
        elif version := _VERSION.match(body):
            self._version(self._enter(prefix), f"{version[1]} {int(version[2])}")
        elif bail := _BAIL.match(body):
            self._bail(self._enter(prefix), number, bail[1].strip())
        else:
            self._text(line)

    def finish(self) -> tuple[Document, ...]:
        self._close_document()
        return tuple(self._documents)

    # -- levels ----------------------------------------------------------------

    def _enter(self, prefix: str) -> _Level:
        """The level with this prefix; deeper ones close, a missing one opens."""
        children: list[Point] = []
        diagnostics: list[str] = []
        while not prefix.startswith(self._stack[-1].prefix):
            level = self._stack.pop()
            children = self._believed(level, len(self._stack)) + level.children + children
            diagnostics = level.diagnostics + diagnostics
            if not level.prefix.startswith(prefix):
                # A sibling in another style of indentation is nobody's child here.
                self._stack[-1].children.extend(children)
                children = []
        if self._stack[-1].prefix != prefix:
            self._stack.append(_Level(prefix))
        top = self._stack[-1]
        top.children.extend(children)
        top.diagnostics.extend(diagnostics)
        return top

    def _believed(self, level: _Level, depth: int) -> list[Point]:
        """Check a finished level against its plan; returns the verdicts that count."""
        if level.plan is None:
            if level.points and depth == 0:
                self._problem(Flaw.NO_PLAN, "verdicts without a plan line 1..N", 0, depth)
            return level.points
        kept = []
        for point in level.points:
            if 1 <= point.number <= level.plan:
                kept.append(point)
            else:
                self._unplanned(point, level.plan, depth)
        absent = level.plan - len({p.number for p in kept})
        if absent > 0 and level.bail_out is None:
            promise = f"the plan promises {level.plan} verdicts, {absent} never came"
            self._problem(Flaw.MISSING, promise, 0, depth)
        return kept

    def _unfinished(self) -> Unfinished | None:
        if len(self._stack) < 2:
            return None
        level = self._stack[1]
        return Unfinished(plan=level.plan, points=tuple(level.points))

    def _close_document(self) -> None:
        unfinished = self._unfinished()
        root = self._enter("")
        points = self._believed(root, 0)
        if root.children:
            # Nobody answers for these: they must not pass for verdicts of their own.
            lost = f"{len(root.children)} subtests without the verdict they belong to"
            self._problem(Flaw.ORPHANS, lost, root.children[0].line, 1)
        if self._dropped:
            more = f"and {self._dropped} more problems"
            self._problems.append(Problem(Flaw.MORE, more, 0, self._dropped_level))
        self._documents.append(
            Document(
                version=root.version,
                plan=root.plan,
                plan_skip=root.plan_skip,
                points=tuple(points),
                problems=tuple(self._problems),
                bail_out=root.bail_out,
                diagnostics=tuple(root.diagnostics),
                unfinished=unfinished,
            )
        )
        self._stack = [_Level("")]
        self._problems = []
        self._dropped = 0

    # -- lines -----------------------------------------------------------------

    def _text(self, line: str) -> None:
        """File free text under the deepest open level whose prefix it carries."""
        level = next(x for x in reversed(self._stack) if line.startswith(x.prefix))
        rest = line[len(level.prefix) :]
        if rest.startswith("#"):
            rest = rest[1:].removeprefix(" ")
        if rest and not rest.isspace():
            level.diagnostics.append(rest)

    def _point(self, level: _Level, line: int, match: re.Match[str]) -> None:
        name, directive, reason = split_directive((match[3] or "").removeprefix("- "))
        point = Point(
            number=int(match[2]),
            name=name,
            ok=not match[1],
            directive=directive,
            reason=reason,
            diagnostics=tuple(level.diagnostics),
            children=tuple(level.children),
            line=line,
        )
        level.diagnostics = []
        level.children = []
        depth = len(self._stack) - 1
        if level.plan is not None and not 1 <= point.number <= level.plan:
            self._unplanned(point, level.plan, depth)
            # What was printed so far belongs to the verdict that is still to come.
            level.diagnostics = list(point.diagnostics)
            level.children = list(point.children)
            return
        if point.number in level.numbers:
            self._problem(
                Flaw.DUPLICATE, f"number {point.number} comes twice ({name})", line, depth
            )
        level.numbers.add(point.number)
        level.points.append(point)

    def _plan(self, level: _Level, line: int, match: re.Match[str]) -> None:
        if level.plan is not None:
            depth = len(self._stack) - 1
            self._problem(Flaw.SECOND_PLAN, f"a second plan, 1..{match[1]}", line, depth)
            return
        level.plan = int(match[1])
        if level.plan == 0 and match[2] is not None:
            level.plan_skip = match[2].strip()

    def _version(self, level: _Level, version: str) -> None:
        if level is self._stack[0] and level.touched:
            self._close_document()
            level = self._stack[0]
        elif level.touched:
            # A nested header that comes again: another program of the same collection.
            level.plan = None
            level.numbers.clear()
        level.version = version

    def _bail(self, level: _Level, line: int, reason: str) -> None:
        level.bail_out = reason
        self._problem(Flaw.BAIL_OUT, f"the program gave up: {reason}", line, len(self._stack) - 1)

    # -- problems --------------------------------------------------------------

    def _unplanned(self, point: Point, plan: int, depth: int) -> None:
        verdict = "ok" if point.ok else "not ok"
        self._problem(
            Flaw.UNPLANNED,
            f"'{verdict} {point.number} {point.name[:80]}' is outside the plan 1..{plan}",
            point.line,
            depth,
        )

    def _problem(self, flaw: Flaw, message: str, line: int, level: int) -> None:
        if len(self._problems) < _PROBLEMS_MAX:
            self._problems.append(Problem(flaw, message, line, level))
        else:
            # The outermost level counts: a verdict depends on whether one shows there.
            self._dropped_level = min(level, self._dropped_level) if self._dropped else level
            self._dropped += 1
