# SPDX-License-Identifier: GPL-2.0-only
"""``ktest-ntcopy check``: what it finds in a kernel file, and how it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.check import examine
from ktest_ntcopy.image.expectations import Found, check
from ktest_ntcopy.image.presence import Verdict, feature_present
from tests.unit import fake_kernel as fake
from tests.unit.check_samples import THERE, demo, image
from tests.unit.whole_kernel import whole


def one(tmp_path: Path, text: str, kernel: bytes | None = None) -> tuple[Found, str]:
    """What becomes of one expectation on a kernel that meets those of THERE."""
    feature = demo(tmp_path, "\n[[expect]]\n", text, '\nwhy = "so"\n')
    kernel = kernel or whole([demo(tmp_path, THERE)])
    finding = check(image(tmp_path, kernel), feature.expectations[0])
    return finding.found, finding.message


# Every kind


def test_every_kind_is_found(tmp_path: Path) -> None:
    feature = demo(tmp_path, THERE)
    report = examine(image(tmp_path, whole([feature])), [feature])
    assert [f.message for f in report.features[0].findings if f.found is not Found.FOUND] == []
    assert report.status == 0
    assert report.features[0].verdict is Verdict.PRESENT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "symbol"\nname = "begn"', "found nothing of that name; nearest: begin"),
        ('kind = "symbol"\nname = "begin"\ntype = "object"', "found global func begin at 0x"),
        ('kind = "symbol"\nname = "begin"\nabsent = true', "found global func begin at 0x"),
        ('kind = "export"\nname = "end"', "bytes, which is not exported"),
        ('kind = "export"\nname = "begin"\ngpl = false', "exported, GPL only, namespace DEMO"),
        ('kind = "export"\nname = "begin"\nnamespace = ""', "found begin exported, GPL only"),
        ('kind = "export"\nname = "begin"\nabsent = true', "found begin exported"),
        ('kind = "member"\nname = "thing.flaf"', "found thing without it; nearest: thing.flag"),
        ('kind = "member"\nname = "thinf.flag"', "no struct or union thinf; nearest: thing"),
        ('kind = "member"\nname = "thing.flag"\noffset = 4', "thing.flag at byte 8, 1 bytes"),
        ('kind = "member"\nname = "thing.flag"\nsize = 4', "thing.flag at byte 8, 1 bytes"),
        ('kind = "member"\nname = "thing.flag"\ntype = "int"', "found bool thing.flag"),
        ('kind = "struct"\nname = "thing"\nsize = 8', "(size 8), found thing, 16 bytes"),
        ('kind = "struct"\nname = "thin"', "nearest: thing"),
        ('kind = "enumerator"\nname = "THING_ONE"\nvalue = 5', "found THING_ONE = -5"),
        ('kind = "enumerator"\nname = "THING_TWO"', "nothing of that name; nearest: THING_ONE"),
        (
            'kind = "prototype"\nname = "middle"\nsignature = "int middle(struct thing *)"',
            "found unsigned long middle(struct thing *",
        ),
        ('kind = "prototype"\nname = "mid"\nsignature = "int mid(void)"', "nothing of that name"),
        ('kind = "config"\nname = "CONFIG_THING"\nvalue = "n"', "found CONFIG_THING=y in IKCONFIG"),
        ('kind = "config"\nname = "CONFIG_THINK"', "CONFIG_THINK not set"),
        ('kind = "config"\nname = "CONFIG_THINK"', "nearest: CONFIG_THING"),
        ('kind = "config"\nname = "CONFIG_THING"\nvalue = "7"', "found CONFIG_THING=y"),
        ('kind = "call"\nname = "end -> begin"', "end calls nothing"),
        ('kind = "call"\nname = "begin -> middle"\nabsent = true', "found begin -> middle (at 0x"),
        ('kind = "call"\nname = "begin -> end"\nthrough = ["other"]', "begin calls middle"),
        (
            'kind = "pointer"\nname = "ops.inner.run"\nstruct = "operations"\ntarget = "end"',
            "found ops.inner.run = begin",
        ),
        (
            'kind = "pointer"\nname = "opt.inner.run"\nstruct = "operations"\ntarget = "end"',
            "found no variable opt",
        ),
        (
            'kind = "initial"\nname = "ops.able"\nstruct = "operations"\nvalue = 0',
            "found ops.able = 1",
        ),
        (
            'kind = "initial"\nname = "ops.abel"\nstruct = "operations"\nvalue = 0',
            "struct operations without abel",
        ),
    ],
)
def test_what_is_not_as_expected(tmp_path: Path, text: str, said: str) -> None:
    found, message = one(tmp_path, text)
    assert found is Found.MISSING
    assert message.startswith("expected ")
    assert said in message
    assert message.endswith("[demo.toml:10: so]")
    assert "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        'kind = "symbol"\nname = "nowhere"\nabsent = true',
        'kind = "export"\nname = "end"\nabsent = true',
        'kind = "member"\nname = "thing.nowhere"\nabsent = true',
        'kind = "struct"\nname = "nowhere"\nabsent = true',
        'kind = "enumerator"\nname = "NOWHERE"\nabsent = true',
        'kind = "call"\nname = "end -> begin"\nabsent = true',
        'kind = "config"\nname = "CONFIG_NOWHERE"\nvalue = "n"',
    ],
)
def test_what_must_not_be_there(tmp_path: Path, text: str) -> None:
    assert one(tmp_path, text)[0] is Found.FOUND


def test_a_function_that_is_not_there_proves_no_absent_call(tmp_path: Path) -> None:
    found, message = one(tmp_path, 'kind = "call"\nname = "nowhere -> end"\nabsent = true')
    assert found is Found.UNKNOWN
    assert "no function nowhere" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('versions = ">=6.13"', "it is about Linux >=6.13"),
        ('versions = "<6.12"', "it is about Linux <6.12"),
        ('arches = ["s390x", "aarch64"]', "it is about s390x and aarch64"),
        ('needs = ["CONFIG_THING", "CONFIG_NOT"]', "CONFIG_NOT is not set (IKCONFIG in "),
        ('needs = ["CONFIG_MODULE"]', "CONFIG_MODULE is a module"),
    ],
)
def test_what_does_not_apply(tmp_path: Path, text: str, said: str) -> None:
    kernel = whole([demo(tmp_path, THERE)], config={"CONFIG_MODULE": "m"})
    found, message = one(tmp_path, f'kind = "symbol"\nname = "nowhere"\n{text}', kernel)
    assert found is Found.NOT_APPLICABLE
    assert f"symbol nowhere: does not apply: {said}" in message


def test_whether_it_applies_may_not_be_known(tmp_path: Path) -> None:
    text = 'kind = "symbol"\nname = "{}"\nneeds = ["CONFIG_THING"]'
    bare = fake.elf(symbols=["begin"])
    assert one(tmp_path, text.format("begin"), bare)[0] is Found.FOUND
    found, message = one(tmp_path, text.format("nowhere"), bare)
    assert found is Found.UNKNOWN
    assert "whether CONFIG_THING is set is not known" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "member"\nname = "a.b"', "has no BTF (set CONFIG_DEBUG_INFO_BTF=y)"),
        ('kind = "config"\nname = "CONFIG_A"', "no configuration in it or beside it"),
        ('kind = "export"\nname = "one"', "has no table of exports (set CONFIG_MODULES=y)"),
    ],
)
def test_what_cannot_be_told(tmp_path: Path, text: str, said: str) -> None:
    found, message = one(tmp_path, text, fake.elf(symbols=["one"]))
    assert found is Found.UNKNOWN
    assert said in message


# Verdicts


@pytest.mark.parametrize(
    ("without", "verdict", "present"),
    [
        ([], Verdict.PRESENT, True),
        (["initial.tcp_prot.ntcopy"], Verdict.PARTIAL, True),
        (["msg_ntcopy"], Verdict.ABSENT, False),
    ],
)
def test_verdict_on_a_feature(
    tmp_path: Path, without: list[str], verdict: Verdict, present: bool
) -> None:
    feature = next(f for f in load_features() if f.name == "msg_ntcopy")
    facts = image(tmp_path, whole(without=without))
    assert examine(facts, [feature]).features[0].verdict is verdict
    assert feature_present(facts, feature) is present


def test_a_file_that_cannot_tell_has_no_verdict(tmp_path: Path) -> None:
    report = examine(image(tmp_path, fake.elf(symbols=[])), load_features())
    assert {f.verdict for f in report.features} == {Verdict.UNKNOWN}
    assert report.status == 2


# Data that makes no sense


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "symbol"\nname = "a b"', "'name' is 'a b'; a symbol's is a function or object"),
        ('kind = "call"\nname = "a"', "'name' is 'a'; a call's is source -> target"),
        ('kind = "symbol"\nname = "a"\noffset = 3', "a symbol takes no 'offset'"),
        ('kind = "member"\nname = "a.b"\noffset = -1', "'offset' is -1, which no kernel can have"),
        ('kind = "member"\nname = "a.b"\nsize = 99999999999999999999', "which no kernel can have"),
        ('kind = "prototype"\nname = "a"', "key 'signature' is missing"),
        ('kind = "prototype"\nname = "a"\nsignature = "int b(void)"', "declares no function a"),
        ('kind = "pointer"\nname = "a.b"\nstruct = "c"', "key 'target' is missing"),
        ('kind = "initial"\nname = "a.b"\nstruct = "c"\nvalue = "x"', "'value' is not an integer"),
        (
            'kind = "config"\nname = "CONFIG_A"\nabsent = true',
            "takes no 'absent'; say value = \"n\"",
        ),
        ('kind = "config"\nname = "CONFIG_A"\nvalue = 3', "'value' is not a string"),
        ('kind = "symbol"\nname = "a"\nneeds = ["A"]', "'needs' has 'A', which is no CONFIG_NAME"),
        ('kind = "call"\nname = "a -> b"\nthrough = ["a"]', "'a', which cannot lie between"),
        ('kind = "member"\nname = "a.b"\nsize = 1\nabsent = true', "'size' of something absent"),
        ('kind = "symbol"\nname = "a"\nabsent = true\nmarker = true', "exclude each other"),
        ('kind = "symbol"\nname = "a"\nversions = "6"', "'6' is no comparison"),
        ('kind = "symbol"\nname = "a"\nversions = ">7.0, <6.0"', "no version is >7.0, <6.0"),
    ],
)
def test_absurd_expectations_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        demo(tmp_path, "\n[[expect]]\n", text, '\nwhy = "so"\n')
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/demo.toml: expect[1]: ")
    assert "\n" not in str(caught.value)


def test_one_name_for_different_kernels(tmp_path: Path) -> None:
    text = '\n[[expect]]\nkind = "struct"\nname = "a"\nwhy = "so"\nsize = {}\nversions = "{}"\n'
    feature = demo(tmp_path, text.format(8, "<6.12"), text.format(16, ">=6.12, <7.0"))
    assert [e.size for e in feature.expected("6.12", "x86_64")] == [16]
    with pytest.raises(ConfigError, match="two expectations are named"):
        demo(tmp_path, text.format(8, "<=6.12"), text.format(16, ">=6.12, <7.0"))
