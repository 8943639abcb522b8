# SPDX-License-Identifier: GPL-2.0-only
"""`ktest-ntcopy check`: its text, its JSON, its exit status, its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy.cli import main
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.check import examine, to_json, to_text
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel
from tests.unit import fake_kernel as fake
from tests.unit.check_samples import THERE, demo
from tests.unit.whole_kernel import whole


def command(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    status = main(["check", *args])
    return status, capsys.readouterr().out


def test_status_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(whole())
    status, out = command(capsys, str(kernel))
    assert status == 0, out
    for feature in load_features():
        assert f"\n{feature.name}: present\n" in out
    assert "\033" not in out
    kernel.write_bytes(whole(without=["timestamping_any"]))
    status, out = command(capsys, str(kernel), "--brief")
    assert status == 1
    assert "timestamping_any: absent" in out
    assert "missing         enumerator SOCK_TIMESTAMPING_ANY" in out
    assert "because: the bit of sk_flags" in out
    assert command(capsys, str(kernel), "--feature", "msg_ntcopy")[0] == 0


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(whole(without=["timestamping_any"]))
    status, out = command(capsys, "--json", str(kernel))
    answer = json.loads(out)
    assert (answer["format"], answer["version"]) == ("ktest-ntcopy-check", 1)
    assert answer["status"] == status == 1
    assert answer["kernel"]["release"] == "6.12.117-test"
    assert answer["kernel"]["config"] == f"IKCONFIG in {kernel}"
    verdicts = {f["name"]: f["verdict"] for f in answer["features"]}
    assert verdicts["timestamping_any"] == "absent"
    assert verdicts["msg_ntcopy"] == "present"
    lost = [e for f in answer["features"] for e in f["expectations"] if e["result"] == "missing"]
    assert [e["id"] for e in lost] == ["enumerator.SOCK_TIMESTAMPING_ANY"]
    assert lost[0]["marker"] is True
    assert lost[0]["source"].startswith("timestamping_any.toml:")
    # Text and JSON are about the same.
    report = examine(Image(open_kernel(kernel)), load_features())
    assert to_json(report) == answer
    assert to_text(report).count("\n  missing ") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "no such file or directory"),
        (["vmlinux", "--feature", "nothing"], "--feature: no feature nothing; known: msg_ntcopy"),
        (["vmlinux", "--against", "nowhere"], "nowhere: cannot be read"),
        (["vmlinux", "--against", "vmlinux"], "is no text"),
        (["vmlinux", "--against", "empty"], "states no option; a line is CONFIG_NAME=y"),
        (["bare", "--against", "fragment"], "no configuration in it or beside it"),
        (["vmlinux", "--against", "fragment", "--tree", "."], "no kernel source tree"),
        (["vmlinux", "--against", "agrees", "--tree", "."], "no kernel source tree"),
        (["vmlinux", "--against", "typo"], "typo:3: neither CONFIG_NAME=VALUE nor a comment: CONF"),
        (["vmlinux", "--against", "fifo"], "is a FIFO"),
        (["vmlinux", "--against", "/dev/zero"], "is a character device"),
        (["vmlinux", "--against", "huge"], "is no kernel configuration: 4096 MiB"),
        (["no\x1b[2Jw\nhere"], "now\\nhere: no such file"),
    ],
)
def test_what_could_not_be_tried(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vmlinux").write_bytes(whole())
    Path("bare").write_bytes(fake.elf(symbols=["a"]))
    Path("empty").write_text("# nothing\n")
    Path("fragment").write_text("CONFIG_ABSENT=y\n")
    Path("agrees").write_text("CONFIG_NET=y\r\n# CONFIG_ABSENT is not set\r\n")
    Path("typo").write_text("# a fragment\n\nCONFIGNET=y\n")
    os.mkfifo("fifo")
    with Path("huge").open("wb") as huge:
        huge.truncate(4 << 30)
    assert main(["check", *args]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([""], "argument kernel: is empty"),
        (["vmlinux", "--show", ""], "argument --show: is empty"),
        (["vmlinux", "--against", ""], "argument --against: is empty"),
        (["vmlinux", "--show", "a", "--against", "b"], "not allowed with argument"),
    ],
)
def test_arguments_as_from_an_unset_variable(
    capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", *args])
    assert said in capsys.readouterr().err


def test_a_configuration_that_is_not_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(fake.elf(rodata=b"IKCFG_ST cut off"))
    main(["check", str(kernel)])
    said = "(IKCONFIG) is damaged: "
    assert said in capsys.readouterr().out.splitlines()[0]
    main(["check", str(kernel), "--json"])
    assert said in json.loads(capsys.readouterr().out)["kernel"]["config_problem"]


def test_names_do_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "a\x1b[2Jb\nc\u202e"
    kernel.write_bytes(fake.elf(symbols=["evil\x1b]0;title\x07"], config={"CONFIG_X": '"\x1b[1m"'}))
    (tmp_path / "fragment").write_text("CONFIG_X=y\n")
    for more in ([], ["--show", "\x1b[1mtcp"], ["--against", str(tmp_path / "fragment")]):
        main(["check", str(kernel), *more])
        out = capsys.readouterr().out
        assert "/ab\\nc\\u202e: Linux " in out
        assert out.replace("\n", "").replace("\t", "").isprintable()


def shown(capsys: pytest.CaptureFixture[str], kernel: Path, name: str) -> dict[str, Any]:
    _, out = command(capsys, str(kernel), "--json", "--show", name)
    answer: dict[str, Any] = json.loads(out)["show"]
    return answer


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(whole([demo(tmp_path, THERE)]))
    status, out = command(capsys, str(kernel), "--show", "middle")
    assert status == 0
    assert "unsigned long middle(struct thing *" in out
    assert "global func middle at 0x" in out
    assert "not exported" in out
    assert "calls:\n  end" in out
    status, out = command(capsys, str(kernel), "--show", "struct thing")
    assert status == 0
    assert "bool flag" in out
    assert shown(capsys, kernel, "begin")["export"] == {"gpl": True, "namespace": "DEMO"}
    assert [c["name"] for c in shown(capsys, kernel, "begin")["calls"]] == ["middle"]
    assert shown(capsys, kernel, "CONFIG_THING")["config"]["value"] == "y"
    status, out = command(capsys, str(kernel), "--show", "midle")
    assert status == 1
    assert "nothing is known of midle; nearest: middle" in out
    assert command(capsys, str(kernel), "--show", "CONFIG_THINK")[0] == 1
    kernel.write_bytes(fake.bzimage())
    status, out = command(capsys, str(kernel), "--show", "midle")
    assert status == 2
    assert "not looked up" in out


def test_checking_imports_nothing_heavy(tmp_path: Path) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(whole())
    code = (
        "import sys; from ktest_ntcopy.cli import main; status = main(['check', sys.argv[1]]);"
        "heavy = {'pytest', 'jinja2', 'junitparser', 'xdist'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(kernel)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
