# SPDX-License-Identifier: GPL-2.0-only
"""A feature that expects something of every kind, and kernels to look at."""

from __future__ import annotations

from pathlib import Path

from ktest_ntcopy.features.model import Feature, load_feature
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel
from tests.unit.demo_feature import HEAD

THERE = """
[[expect]]
kind = "symbol"
name = "begin"
type = "func"
why = "it begins here"
marker = true

[[expect]]
kind = "symbol"
name = "table"
type = "object"
why = "it is kept here"

[[expect]]
kind = "export"
name = "begin"
gpl = true
namespace = "DEMO"
why = "modules begin, too"

[[expect]]
kind = "member"
name = "thing.flag"
offset = 8
size = 1
type = "bool"
why = "it is marked here"

[[expect]]
kind = "struct"
name = "thing"
size = 16
why = "it does not grow"

[[expect]]
kind = "enumerator"
name = "THING_ONE"
value = -5
why = "it is counted"

[[expect]]
kind = "prototype"
name = "middle"
signature = "unsigned long middle(struct thing *thing, char *text)"
why = "it is called so"

[[expect]]
kind = "config"
name = "CONFIG_THING"
value = "y"
why = "it is built"

[[expect]]
kind = "call"
name = "begin -> end"
through = ["middle"]
why = "it ends"

[[expect]]
kind = "call"
name = "other -> end"
why = "others do not end"
absent = true

[[expect]]
kind = "pointer"
name = "ops.inner.run"
struct = "operations"
target = "begin"
why = "it is run so"

[[expect]]
kind = "initial"
name = "ops.able"
struct = "operations"
value = 1
why = "it is able"
"""


def demo(tmp_path: Path, *more: str) -> Feature:
    """A feature of which ``more`` is all that it expects, such as :data:`THERE`."""
    path = tmp_path / "demo.toml"
    path.write_text(HEAD + "".join(more))
    return load_feature(path)


def image(tmp_path: Path, data: bytes) -> Image:
    """What can be asked of a kernel file with these bytes."""
    path = tmp_path / "vmlinux"
    path.write_bytes(data)
    return Image(open_kernel(path))
