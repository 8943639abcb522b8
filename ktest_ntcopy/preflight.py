# SPDX-License-Identifier: GPL-2.0-only
"""What tests need, held against the kernel file and the virtual machine before it boots.

Where the file cannot tell (no configuration, no type information), nothing is said
against a test: it runs, and finds out for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

from ktest_ntcopy.compiler import cannot_compile
from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.expect import Expectation
from ktest_ntcopy.features.model import Feature, load_features
from ktest_ntcopy.features.needs import Need
from ktest_ntcopy.image.expectations import Found, check
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.presence import feature_present
from ktest_ntcopy.machine.base import MachineSpec


@dataclass(frozen=True, kw_only=True)
class Room:
    """What the virtual machine has."""

    cpus: int
    memory_mib: int
    devices: Callable[[], frozenset[str]] = frozenset  #: as QEMU names them

    @classmethod
    def of(cls, spec: MachineSpec) -> Room:
        """What a machine of that description has."""
        return cls(cpus=spec.cpus, memory_mib=spec.memory_mib, devices=partial(_qemu_devices, spec))


def _qemu_devices(spec: MachineSpec) -> frozenset[str]:
    from ktest_ntcopy.machine.qemu_command import Layout, qemu_arguments

    nowhere = Path()
    layout = Layout(
        control=nowhere,
        monitor=nowhere,
        console=nowhere,
        initramfs=nowhere,
        log=nowhere,
        scratch=nowhere,
    )
    words = qemu_arguments("qemu", spec, layout, accel="tcg")
    return frozenset(value.split(",")[0] for word, value in pairwise(words) if word == "-device")


@dataclass(frozen=True)
class Obstacle:
    """A need that is not met."""

    need: Need
    reason: str  #: one line

    @property
    def feature(self) -> bool:
        """True if it is the feature itself that is missing."""
        return self.need.kind == "feature" and not self.need.name


class Preflight:
    """Tells why tests cannot run, without booting anything.

    Every answer is worked out once.  Raises ConfigError for a damaged kernel file.
    """

    def __init__(self, image: Image, room: Room) -> None:
        self._image = image
        self._room = room
        self._unmet = cache(self._look)
        self._present: dict[str, bool | None] = {}

    def obstacle(self, feature: Feature, needs: Iterable[Need]) -> Obstacle | None:
        """The first need that is not met; None if nothing is known against the test."""
        for need in needs:
            if need.kind == "feature":
                reason = self._without(feature if need.name in ("", feature.name) else need.name)
            else:
                reason = self._unmet(need)
            if reason:
                return Obstacle(need, reason)
        return None

    def _without(self, wanted: Feature | str) -> str:
        if isinstance(wanted, str):
            known = {f.name: f for f in load_features()}
            if wanted not in known:
                raise ConfigError(f"needs: no feature {wanted}; known: {', '.join(known)}")
            wanted = known[wanted]
        feature = wanted
        # By name: features hold mappings, which have no hash.
        if feature.name not in self._present:
            self._present[feature.name] = feature_present(self._image, feature)
        if self._present[feature.name] is not False:
            return ""
        kernel = self._image.kernel
        expected = feature.expected(kernel.version, kernel.arch)
        trace = next((e for e in expected if e.marker), None)
        lacks = f" (no {trace.kind} {trace.name} in {_file(self._image)})" if trace else ""
        return f"the kernel is without {feature.name}{lacks}"

    def _look(self, need: Need) -> str:
        match need.kind:
            case "config":
                return self._config(need)
            case "cpus":
                return self._machine(self._room.cpus, need, "CPUs", "--ktest-cpus")
            case "memory":
                return self._machine(self._room.memory_mib, need, "MiB", "--ktest-memory")
            case "bits":
                return cannot_compile(int(need.value))
            case "device":
                here = need.name in self._room.devices()
                return "" if here else f"the machine has no device {need.name}"
        finding = check(self._image, Expectation(kind=need.kind, name=need.name, why=""))
        if finding.found is Found.MISSING:
            return f"there is no {need.kind} {need.name} in {_file(self._image)}"
        return ""

    def _machine(self, has: int, need: Need, what: str, option: str) -> str:
        if has >= int(need.value):
            return ""
        return f"needs {need.value} {what}, the machine has {has} (see {option})"

    def _config(self, need: Need) -> str:
        config = self._image.kernel.config
        if config is None:
            return ""
        value, wanted = config[need.name], need.value or "y"
        if value == wanted:
            return ""
        if value == "n":
            state = "is not set"
        elif value == "m" and wanted == "y":
            state = "is a module, which the machine does not load,"
        else:
            state = f"is {value}, not {wanted},"
        origin = "" if config.source.startswith("IKCONFIG in ") else f" ({config.source})"
        return f"{need.name} {state} in {_file(self._image)}{origin}"


def _file(image: Image) -> str:
    return (image.kernel.vmlinux or image.kernel.path).name
