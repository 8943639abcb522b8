# SPDX-License-Identifier: GPL-2.0-only
"""Which configuration belongs to a kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.config import read_config
from ktest_ntcopy.image.file.kernel_file import KernelFile, open_kernel
from tests.unit import fake_kernel as fake

RELEASE = "6.12.117-test"
TITLE = "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 {} Kernel Configuration\n#\n"


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def look(folder: Path, **options: object) -> KernelFile:
    (folder / "vmlinux").write_bytes(fake.elf(**options))  # type: ignore[arg-type]
    return open_kernel(folder / "vmlinux")


def source(kernel: KernelFile) -> str:
    return kernel.config.source if kernel.config else ""


def test_the_one_inside_comes_first(tmp_path: Path) -> None:
    put(tmp_path / f"config-{RELEASE}", "CONFIG_A=y\n")
    kernel = look(tmp_path, config={"CONFIG_B": "y"})
    assert source(kernel) == f"IKCONFIG in {tmp_path / 'vmlinux'}"
    assert kernel.config_problem == ""


def test_the_release_in_the_name_proves_it(tmp_path: Path) -> None:
    """Debian's has the version of the source in its title, not the release."""
    config = put(tmp_path / f"config-{RELEASE}", TITLE.format("6.1.192") + "CONFIG_A=y\n")
    put(tmp_path / ".config", TITLE.format("6.12.117") + "CONFIG_B=y\n")
    assert source(look(tmp_path)) == str(config)


def test_modules_directory(tmp_path: Path) -> None:
    config = put(tmp_path / RELEASE / "config", "CONFIG_A=y\n")
    assert source(look(tmp_path / RELEASE)) == str(config)


@pytest.mark.parametrize("version", ["6.12.117", RELEASE])
def test_title_of_the_same_version(tmp_path: Path, version: str) -> None:
    config = put(tmp_path / ".config", TITLE.format(version) + "CONFIG_A=y\n")
    assert source(look(tmp_path)) == str(config)


@pytest.mark.parametrize("version", ["6.12.11", "6.12.118", "6.12", "6.12.1", "6.1.192"])
def test_title_of_another_version(tmp_path: Path, version: str) -> None:
    config = put(tmp_path / ".config", TITLE.format(version) + "CONFIG_A=y\n")
    kernel = look(tmp_path)
    assert kernel.config is None
    assert kernel.config_problem == (
        f"{config}: not used: it is of Linux {version}, the kernel is {RELEASE}"
    )


def test_file_without_a_title(tmp_path: Path) -> None:
    put(tmp_path / ".config", "CONFIG_A=y\n")
    kernel = look(tmp_path)
    assert kernel.config is None
    assert f"does not say that it is of Linux {RELEASE}" in kernel.config_problem


def test_build_of_another_release(tmp_path: Path) -> None:
    put(tmp_path / ".config", TITLE.format("6.12.117") + "CONFIG_A=y\n")
    put(tmp_path / "include/config/kernel.release", "6.12.117-other\n")
    kernel = look(tmp_path)
    assert kernel.config is None
    assert "its build is of Linux 6.12.117-other (kernel.release)" in kernel.config_problem


def test_build_of_the_same_release(tmp_path: Path) -> None:
    config = put(tmp_path / ".config", "CONFIG_A=y\n")
    put(tmp_path / "include/config/kernel.release", RELEASE + "\n")
    assert source(look(tmp_path)) == str(config)


def test_refused_file_gives_way_to_the_next(tmp_path: Path) -> None:
    put(tmp_path / ".config", TITLE.format("6.1.192"))
    used = put(tmp_path / "include/config/auto.conf", TITLE.format("6.12.117") + "CONFIG_A=y\n")
    kernel = look(tmp_path)
    assert source(kernel) == str(used)
    assert "it is of Linux 6.1.192" in kernel.config_problem


def test_config_edited_after_the_build_gives_way_to_what_was_built(tmp_path: Path) -> None:
    options = put(tmp_path / ".config", TITLE.format("6.12.117") + "CONFIG_A=y\n")
    used = put(tmp_path / "include/config/auto.conf", TITLE.format("6.12.117") + "CONFIG_B=y\n")
    look(tmp_path)
    for number, path in enumerate((used, tmp_path / "vmlinux", options), 1):
        os.utime(path, (number * 1000, number * 1000))
    assert source(open_kernel(tmp_path / "vmlinux")) == str(used)
    os.utime(options, (500, 500))
    assert source(open_kernel(tmp_path / "vmlinux")) == str(options)


def test_the_mark_alone_is_no_configuration(tmp_path: Path) -> None:
    mark = b"IKCFG_ST and so on IKCFG_ED\0"
    whole = fake.ikconfig({"CONFIG_A": "y"})
    kernel = look(tmp_path, rodata=mark + whole + b"\0" * 99)
    assert source(kernel) == f"IKCONFIG in {tmp_path / 'vmlinux'}"
    assert kernel.config_problem == ""
    assert not source(look(tmp_path, rodata=mark * 16 + whole + b"\0" * 99))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (b"IKCFG_ST\x1f\x8b\x08 damaged IKCFG_ED", "is damaged"),
        (fake.ikconfig({"CONFIG_A": "y" * 5000})[:40], "is damaged"),
        (b"IKCFG_ST not packed at all", "incorrect header"),
    ],
    ids=["no data", "cut off", "not packed"],
)
def test_damaged_configuration_inside_is_reported(tmp_path: Path, config: bytes, said: str) -> None:
    near = put(tmp_path / f"config-{RELEASE}", "CONFIG_A=y\n")
    kernel = look(tmp_path, rodata=config + b"\0" * 99)
    assert said in kernel.config_problem
    assert "\n" not in kernel.config_problem
    assert source(kernel) == str(near)


def test_configuration_that_unpacks_to_too_much(tmp_path: Path) -> None:
    kernel = look(tmp_path, config={"CONFIG_A": "y" * (9 << 20)})
    assert kernel.config is None
    assert "more than 8 MiB" in kernel.config_problem


def test_config_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".config")
    assert look(tmp_path).config is None
    with pytest.raises(ConfigError, match="is a FIFO"):
        read_config(tmp_path / ".config")


def test_absurdly_large_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kernel configuration"):
        read_config(_sparse(tmp_path / ".config"))


def _sparse(path: Path) -> Path:
    path.touch()
    os.truncate(path, 1 << 32)
    return path
