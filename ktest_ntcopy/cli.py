# SPDX-License-Identifier: GPL-2.0-only
"""The ``ktest-ntcopy`` command: says what it does, does it, and exits with the truth.

Exit status: 0 all well, 1 a test or a gate failed, 2 it could not be tried; 130 after an
interrupt, 141 if who reads the output closed it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ktest_ntcopy import __version__
from ktest_ntcopy import arguments as takes
from ktest_ntcopy.errors import USAGE, BuildError, KtestError

_DEBUG_MEMORY = 1024  # MiB of a guest whose kernel shadows its memory, as KASAN does
_PIPE = 128 + 13  # exit status of what SIGPIPE has ended, as shells say it


def _complain(text: str) -> int:
    """Say what is wrong, on one line whatever the names in it hold; the exit status."""
    from ktest_ntcopy.results.text import visible

    _say(f"error: {visible(text)}")
    return USAGE


def _say(line: str) -> None:
    print(f"ktest-ntcopy: {line}", file=sys.stderr, flush=True)


def _generate(args: argparse.Namespace) -> int:
    from ktest_ntcopy.kernel import selftests, tree

    found = tree.recognise(args.tree)
    tree.require_clean(found)
    report = selftests.generate(found.path, found.version)
    for path in report.written:
        print(f"wrote {path.relative_to(found.path)}")
    print(f"{len(report.written)} written, {len(report.unchanged)} unchanged")
    return 0


def _apply(args: argparse.Namespace) -> int:
    from ktest_ntcopy.kernel import selftests, tree

    found = tree.recognise(args.tree)
    tree.require_clean(found)
    # A tree that cannot take the tests does not get the series either.
    selftests.generate(found.path, found.version, dry_run=True)
    applied = tree.apply(found)
    print(f"Linux {found.release}: " + (f"applied {', '.join(applied)}" if applied else "has all"))
    return _generate(args)


def prepare(version: str, *, patched: bool = True, debug: bool = False) -> tuple[Path, Path]:
    """Tree and vmlinux, both in the cache and up to date."""
    from ktest_ntcopy.features.model import debug_kconfig, kconfig
    from ktest_ntcopy.kernel import build, source
    from ktest_ntcopy.kernel.kconfig import render
    from ktest_ntcopy.paths import cache_root

    make_tree = source.prepare if patched else source.unpatched
    fragment = render(kconfig()) + (render(debug_kconfig(), debug=True) if debug else "")
    for attempt in (1, 2):
        tree = make_tree(version, _say)
        out = cache_root() / "builds" / f"{tree.path.name}{'-debug' if debug else ''}"
        try:
            built = build.build(tree, out, fragment, _say)
            break
        except BuildError as err:
            if attempt == 2:
                raise
            # It may be the cache's fault; a tree costs seconds to unpack.
            _say(f"{err}; trying once more with the tree unpacked again")
            source.discard(tree)
    _say(
        f"Linux {tree.release} built in {built.seconds:.0f} s"
        if built.seconds
        else f"Linux {tree.release} is built already"
    )
    return tree.path, built.vmlinux


def _fetch(args: argparse.Namespace) -> int:
    from ktest_ntcopy.kernel import source

    print(source.prepare(args.version, _say).path)
    return 0


def _build(args: argparse.Namespace) -> int:
    print(prepare(args.version, patched=not args.unpatched, debug=args.debug)[1])
    return 0


def _run(args: argparse.Namespace) -> int:
    tree, vmlinux = prepare(args.version, debug=args.debug)
    args.junitxml.parent.mkdir(parents=True, exist_ok=True)
    workers = ["-n", args.workers] if args.workers != "0" else []
    argv = [
        "-m",
        "pytest",
        f"--kernel={vmlinux}",
        f"--ktest-tree={tree}",
        "-q",
        "--ktest-table",
        *workers,
    ]
    if args.debug:
        argv.append(f"--ktest-memory={_DEBUG_MEMORY}")
    argv += [f"--junitxml={args.junitxml}", *args.pytest]
    _say(f"running: python {' '.join(argv)}")
    os.execv(sys.executable, [sys.executable, *argv])  # pytest's exit status becomes ours


def _report(args: argparse.Namespace) -> int:
    from ktest_ntcopy.report.main import report

    table, good = report(args.journal, junitxml=args.junitxml, colour=sys.stdout.isatty())
    print(table)
    return 0 if good else 1


def _docs(args: argparse.Namespace) -> int:
    from ktest_ntcopy import docs

    stale = docs.write(check=args.check)
    for path in stale:
        print(f"{'stale' if args.check else 'wrote'} {path}")
    return 1 if args.check and stale else 0


def _check(args: argparse.Namespace) -> int:
    import gc

    # Hardly anything here is a cycle, but the many small objects would be looked through.
    gc.set_threshold(100_000)
    from ktest_ntcopy.image.check_command import run

    return run(
        args.kernel,
        features=args.feature,
        as_json=args.json,
        brief=args.brief,
        show=args.show or "",
        against=args.against,
        tree=args.tree,
        dwarf=args.dwarf,
        colour=sys.stdout is not None and sys.stdout.isatty(),
    )


def _check_series(args: argparse.Namespace) -> int:
    from ktest_ntcopy.kernel import gates

    return gates.check(args.version, bisect=args.bisect, cross=args.cross, notify=_say)


def _format_series(args: argparse.Namespace) -> int:
    from ktest_ntcopy.kernel import series, tree

    found = tree.recognise(args.tree)
    known = {s.name: s for s in series.read_series(found.version, complete=False)}
    if args.name not in known:
        raise KtestError(f"no series {args.name}; there are {', '.join(known)}")
    one = known[args.name]
    series.format_series(found.path, args.commits, one.folder, one.prefix)
    print(f"wrote {one.folder}")
    return 0


def _mutants(args: argparse.Namespace) -> int:
    from ktest_ntcopy.kernel import source
    from ktest_ntcopy.mutants import main, mutant

    chosen = mutant.select(mutant.read(args.version), args.names)
    if args.list:
        for one in chosen:
            print(f"{one.name}: {one.breaks}")
        return 0
    if args.check:
        return main.check(chosen, source.prepare(args.version, _say))
    return main.run(chosen, *prepare(args.version), _say)


def _cost(args: argparse.Namespace) -> int:
    from ktest_ntcopy import cost

    before, after = (cost.measure(kernel, _say) for kernel in (args.before, args.after))
    print(cost.table(before, after))
    return 0


def _zerocopy_table(args: argparse.Namespace) -> int:
    from ktest_ntcopy import zerocopy_table

    print(
        zerocopy_table.run(
            args.kernel, args.tree, seconds=args.seconds, repeat=args.repeat, notify=_say
        )
    )
    return 0


_Action = Callable[[argparse.Namespace], int]
_Takes = Callable[[argparse.ArgumentParser], None]
_COMMANDS: tuple[tuple[str, _Action, _Takes, str], ...] = (
    ("run", _run, takes.run, "fetch, patch, build and boot a kernel, run all tests, report"),
    ("fetch", _fetch, takes.version, "obtain source, apply the series, generate the tests"),
    ("build", _build, takes.build, "the same, then configure and compile; prints vmlinux"),
    ("apply", _apply, takes.tree, "apply the series to a tree and generate the tests"),
    ("generate", _generate, takes.tree, "write the C kselftests into a tree"),
    ("report", _report, takes.report, "make reports from the journal of a run, even a killed one"),
    ("docs", _docs, takes.docs, "write what is generated from the feature data"),
    ("check", _check, takes.check, "say what a kernel file shows of the features, in a blink"),
    ("check-series", _check_series, takes.check_series, "hold the patch series to netdev's gates"),
    ("mutants", _mutants, takes.mutants, "break the kernel in known ways; the tests must notice"),
    ("cost", _cost, takes.cost, "count the instructions of a send on two kernels"),
    (
        "zerocopy-table",
        _zerocopy_table,
        takes.zerocopy_table,
        "measure copy, zerocopy, and zerocopy with MSG_ZEROCOPY_UARG, beside what was published",
    ),
    ("format-series", _format_series, takes.format_series, "write a series from commits"),
)


def _help(prog: str) -> argparse.HelpFormatter:
    """As wide as argparse makes it, but it imports three packers of files to find that out."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(1).columns
    except (OSError, ValueError):
        columns = 80
    return argparse.HelpFormatter(prog, width=columns - 2)


def parser(chosen: str = "") -> argparse.ArgumentParser:
    """The command line, with help that suffices.

    For ``chosen``, if it is a command, nothing is prepared that only others need: all of it
    takes as long as some questions about a kernel.
    """
    top = argparse.ArgumentParser(
        prog="ktest-ntcopy",
        description="Carry, test and prove Linux kernel changes to the network send path.",
        epilog="A cache under ~/.cache/ktest-ntcopy (or KTEST_CACHE) holds sources and builds. "
        "To test a kernel of your own: pytest --kernel=PATH",
        formatter_class=_help,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    known = chosen in (name for name, *_ in _COMMANDS)
    for name, action, add, text in _COMMANDS:
        if known and name != chosen:
            continue
        sub = commands.add_parser(name, help=text, description=text, formatter_class=_help)
        sub.set_defaults(action=action)
        add(sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point.  Errors that a person can act on are one line and exit status 2."""
    try:
        given = sys.argv[1:] if argv is None else list(argv)
        args = parser(given[0] if given else "").parse_args(given)
        action: Callable[[argparse.Namespace], int] = args.action
        status = action(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        if argv is None and action is _check:
            # All that it holds is memory and files that it only reads, and to take that apart
            # piece by piece is a tenth of its time.
            os._exit(status)
        return status
    except KtestError as err:
        return _complain(str(err))
    except BrokenPipeError:  # who reads the output has seen enough, as with "| head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is written at the exit
        return _PIPE
    except OSError as err:
        return _complain(f"{err.filename or 'system'}: {err.strerror}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
