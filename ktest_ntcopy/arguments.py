# SPDX-License-Identifier: GPL-2.0-only
"""What each command of the command line takes."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_VERSION = "6.12"


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 3600:
        raise ValueError(text)
    return value


def _text(text: str) -> str:
    if not text:  # as from a shell variable that is not set
        raise argparse.ArgumentTypeError("is empty")
    return text


def _path(text: str) -> Path:
    return Path(_text(text)).expanduser().absolute()


def tree(parser: argparse.ArgumentParser) -> None:
    """Add --tree."""
    parser.add_argument("--tree", type=_path, required=True, help="kernel source tree")


def version(parser: argparse.ArgumentParser) -> None:
    """Add --linux."""
    parser.add_argument(
        "--linux", dest="version", default=DEFAULT_VERSION, help="version, default %(default)s"
    )


def debug(parser: argparse.ArgumentParser) -> None:
    """Add --debug."""
    parser.add_argument(
        "--debug", action="store_true", help="with Kconfig.debug.fragment, in a folder of its own"
    )


def run(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes."""
    version(parser)
    parser.add_argument("--junitxml", type=_path, default=_path("reports/junit.xml"))
    debug(parser)
    parser.add_argument("--workers", default="auto", help="virtual machines at once; 0: no xdist")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")


def build(parser: argparse.ArgumentParser) -> None:
    """Add what `build` takes."""
    version(parser)
    parser.add_argument("--unpatched", action="store_true", help="without the series")
    debug(parser)


def report(parser: argparse.ArgumentParser) -> None:
    """Add what `report` takes."""
    parser.add_argument("journal", type=_path)
    parser.add_argument("--junitxml", type=_path, help="write JUnit here")


def docs(parser: argparse.ArgumentParser) -> None:
    """Add what `docs` takes."""
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")


def check(parser: argparse.ArgumentParser) -> None:
    """Add what `check` takes."""
    parser.epilog = (
        "Exit status: 0 all is there, 1 something is missing, 2 something could not be told. "
        "Without --show and --against, everything that the features expect is looked for: "
        "symbols, exports, struct members, enumerators, prototypes, options, calls."
    )
    parser.add_argument("kernel", type=_path, help="vmlinux, bzImage or build directory")
    parser.add_argument(
        "--feature", action="append", default=[], metavar="NAME", help="this one; repeatable"
    )
    parser.add_argument("--brief", action="store_true", help="leave out what was found")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument(
        "--show",
        type=_text,
        metavar="NAME",
        help="show a type, a symbol, a function with what it calls, or CONFIG_NAME instead",
    )
    asked.add_argument(
        "--against",
        type=_path,
        metavar="FRAGMENT",
        help="compare the configuration with FRAGMENT instead: what differs, the way through "
        "the menus to set it, and which dependencies are in the way",
    )
    parser.add_argument(
        "--tree", type=_path, help="source tree for the menus; default: the kernel's own"
    )
    parser.add_argument(
        "--dwarf", action="store_true", help="ask DWARF where there is no BTF (takes seconds)"
    )
    parser.add_argument("--json", action="store_true", help="for scripts; see image/check.py")


def check_series(parser: argparse.ArgumentParser) -> None:
    """Add what `check-series` takes."""
    version(parser)
    parser.add_argument("--bisect", action="store_true", help="build the kernel at every patch")
    parser.add_argument("--cross", action="store_true", help="compile for arm64 and i386, too")


def mutants(parser: argparse.ArgumentParser) -> None:
    """Add what `mutants` takes."""
    version(parser)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--list", action="store_true", help="only name them")
    only.add_argument("--check", action="store_true", help="only see whether they still apply")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutant or feature; all if none")


def cost(parser: argparse.ArgumentParser) -> None:
    """Add what `cost` takes."""
    parser.add_argument("before", type=_path, help="vmlinux without the change")
    parser.add_argument("after", type=_path, help="vmlinux with it")


def zerocopy_table(parser: argparse.ArgumentParser) -> None:
    """Add what `zerocopy-table` takes."""
    parser.add_argument("kernel", type=_path, help="vmlinux with the series")
    parser.add_argument("--tree", type=_path, help="source tree; default: the kernel's own")
    parser.add_argument("--seconds", type=_count, default=1, help="of each run, default 1")
    parser.add_argument("--repeat", type=_count, default=3, help="rounds, default 3")


def format_series(parser: argparse.ArgumentParser) -> None:
    """Add what `format-series` takes."""
    tree(parser)
    parser.add_argument("name", help="series, e.g. 20-msg-ntcopy")
    parser.add_argument("commits", help="commit range, e.g. v6.12..HEAD")
