# SPDX-License-Identifier: GPL-2.0-only
"""A configuration held against a fragment, and the way through the menus."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ktest_ntcopy.cli import main
from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.kernel.kconfig_menu import Menus
from tests.unit import fake_kernel as fake

TOP = """
mainmenu "Linux/$(ARCH) Kernel"
source "arch/$(SRCARCH)/Kconfig"
menuconfig NET
	bool "Networking support"
	select NLATTR
	help
		Say Y.
		if you do not know, menu "Nothing" is not for you.

		config NONE

if NET
menu "Networking options" # not all
	depends on BROKEN || !BROKEN
source "net/Kconfig"
endmenu
config WIRELESS
	tristate "Wireless" if EXPERT
endif # NET
config NLATTR
	bool
choice
	prompt "Compression"
config GZIP
	bool "Gzip"
endchoice
config LAST
	def_bool y
	prompt "The last # one"
	depends on NET && \\
		INET
"""
NET = """
config INET
	bool 'TCP/IP'
if INET
rsource "ipv4/Kconfig"
endif
config TLS
	tristate "TLS"
	depends on INET
config UNIX
	bool "Unix"
config VSOCK
	bool "Sockets of machines"
config LOOPBACK
	bool "Loopback transport"
	depends on VSOCK
	depends on VIRTIO && (PCI || MMIO)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, text in {
        "Kconfig": TOP,
        "net/Kconfig": NET,
        "net/ipv4/Kconfig": 'config UDP\n\tbool "UDP"\nconfig DIAG\n\tbool "Monitor"\n',
        "arch/x86/Kconfig": 'config PVH\n\tbool "PVH guests"\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("NET", "Networking support"),
        ("CONFIG_NET", "Networking support"),
        ("PVH", "PVH guests"),
        ("INET", "Networking support > Networking options > TCP/IP"),
        ("UDP", "Networking support > Networking options > TCP/IP > UDP"),
        ("TLS", "Networking support > Networking options > TCP/IP > TLS"),
        ("UNIX", "Networking support > Networking options > Unix"),
        (
            "LOOPBACK",
            "Networking support > Networking options > Sockets of machines > Loopback transport",
        ),
        ("WIRELESS", "Networking support > Wireless"),
        ("GZIP", "Compression > Gzip"),
        ("NLATTR", "(NLATTR)"),
        ("LAST", "The last # one"),
    ],
)
def test_way_through_the_menus(tree: Path, name: str, path: str) -> None:
    (place,) = Menus(tree, "x86_64").find(name)
    assert place.path == path


def test_help_is_no_kconfig(tree: Path) -> None:
    menus = Menus(tree, "x86_64")
    assert menus.find("NONE") == ()
    assert menus.selected_by["NLATTR"] == ["NET"]
    assert menus.find("LAST")[0].depends == ("NET", "INET")


def test_files_that_include_each_other(tree: Path) -> None:
    (tree / "net/Kconfig").write_text('source "net/Kconfig"\n')
    with pytest.raises(ConfigError, match="include each other without end"):
        Menus(tree, "x86_64")


def test_files_that_are_no_files(tree: Path) -> None:
    (tree / "net/Kconfig").unlink()
    os.mkfifo(tree / "net/Kconfig")
    (tree / "arch/x86/Kconfig").unlink(missing_ok=True)
    (tree / "arch/x86/Kconfig").symlink_to("/dev/zero")
    assert Menus(tree, "x86_64").find("NET")


def test_lines_of_noise_are_survived(tree: Path) -> None:
    noise = b'endmenu\nendif\n\xff\xfe config\nmenu\nconfig\nselect\n  select \nsource "../../.."\n'
    (tree / "net/Kconfig").write_bytes(noise * 50)
    assert Menus(tree, "x86_64").find("NET")


def against(
    capsys: pytest.CaptureFixture[str], folder: Path, fragment: str, *args: str
) -> tuple[int, str]:
    (folder / "fragment").write_text(fragment)
    kernel = folder / "vmlinux"
    kernel.write_bytes(
        fake.elf(
            symbols=["one"],
            config={**fake.BOOTABLE, "CONFIG_NET": "y", "CONFIG_TLS": "m", "CONFIG_NAME": '"a b"'},
        )
    )
    status = main(["check", str(kernel), "--against", str(folder / "fragment"), *args])
    return status, capsys.readouterr().out


def test_what_is_as_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '# a comment\nCONFIG_NET=y\nCONFIG_NAME="a b"\n# CONFIG_DEBUG is not set\n'
    status, out = against(capsys, tmp_path, text)
    assert status == 0
    assert "all 3 options are as in" in out


def test_what_differs_and_where_to_set_it(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "CONFIG_LOOPBACK=y\nCONFIG_TLS=y\nCONFIG_NLATTR=y\nCONFIG_GONE=y\n# CONFIG_NET is not set"
    )
    text += "\nCONFIG_WIRELESS=y\n"
    status, out = against(capsys, tmp_path, text, "--tree", str(tree))
    assert status == 1
    assert "6 of 6 options are not as in" in out
    for said in (
        "CONFIG_LOOPBACK=y: not set\n  Networking support > Networking options > "
        "Sockets of machines > Loopback transport  (net/Kconfig:14)\n"
        "  first needs VSOCK and VIRTIO and (PCI || MMIO)",
        "CONFIG_TLS=y: is m\n",
        "  (NLATTR)  (Kconfig:21)\n"
        "  has no prompt, so it follows from its default; selected by NET",
        "CONFIG_GONE=y: not set\n  this tree has no such option",
        "CONFIG_NET=n: is y\n  Networking support  (Kconfig:4)",
        "is shown only if EXPERT",
    ):
        assert said in out
    _, out = against(capsys, tmp_path, text, "--tree", str(tree), "--json")
    answer = json.loads(out)["against"]
    options = {o["name"]: o for o in answer["options"]}
    assert answer["tree"] == str(tree)
    assert options["CONFIG_LOOPBACK"]["blocked_by"] == ["VSOCK", "VIRTIO", "(PCI || MMIO)"]
    assert options["CONFIG_GONE"]["menu"] is None


def test_without_a_tree_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = against(capsys, tmp_path, "CONFIG_LOOPBACK=y\n")
    assert status == 1
    assert "CONFIG_LOOPBACK=y: not set" in out
    assert "No source tree is known for this kernel" in out
    assert "give --tree=DIR" in out
