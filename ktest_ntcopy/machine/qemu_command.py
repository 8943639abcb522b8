# SPDX-License-Identifier: GPL-2.0-only
"""The command line that starts a guest in QEMU, and what must hold before it is used."""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import BootError, ConfigError, MachineError
from ktest_ntcopy.machine.base import AGENT, MachineSpec
from ktest_ntcopy.machine.channel import PORT_NAME, SHARE_TAG

BINARY = "qemu-system-x86_64"
ARCH = "x86_64"

_EM_X86_64 = 62
_ELF_MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm"} | {
    43: "sparc64",
    62: "x86_64",
    183: "arm64",
    243: "riscv",
    258: "loongarch",
}


#: Hardware that no test needs, but whose set-up takes a guest a tenth of its boot.
_NO_PROBING = ("i8042.noaux", "i8042.nokbd", "8250.nr_uarts=1", "pty.legacy_count=0")
#: The emulated counter is the host's: no need to doubt it, or to measure it with delay
#: loops.  With ``lpj`` too large at some CONFIG_HZ, delays are longer, never too short for
#: devices that answer at once.
_TCG_CLOCK = ("tsc=reliable", "no_timer_check", "lpj=10000000")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a running machine keeps its files.  Sockets need short paths (108 bytes)."""

    control: Path  #: socket of the agent's port
    monitor: Path  #: socket of QMP
    console: Path  #: pipes of the serial line, with .in and .out added
    initramfs: Path
    log: Path  #: what QEMU itself says
    scratch: Path  #: folder of what nobody needs after the machine's end


def find_qemu(name: str | None = None) -> str:
    """Absolute path of the QEMU binary.  Raises MachineError naming the package."""
    wanted = name or BINARY
    path = shutil.which(wanted)
    if path is None:
        raise MachineError(
            f"{wanted}: no such program on this host: install the package qemu-system-x86"
        )
    return path


def check_kernel(kernel: Path) -> None:
    """Refuse early what QEMU could never boot.

    Raises ConfigError for a file that cannot be read, BootError for one that is
    no x86-64 kernel.
    """
    try:
        with kernel.open("rb") as file:
            head = file.read(0x210)
    except OSError as err:
        raise ConfigError(f"{kernel}: cannot read the kernel: {err.strerror}") from err
    if head[:4] == b"\x7fELF" and len(head) >= 20:
        order = ">" if head[5] == 2 else "<"
        (machine,) = struct.unpack_from(order + "H", head, 18)
        if head[4] != 2 or machine != _EM_X86_64:
            name = _ELF_MACHINES.get(machine, f"machine {machine}")
            raise BootError(f"{kernel}: a kernel for {name}; this machine emulates {ARCH}")
    elif head[0x202:0x206] != b"HdrS":
        raise BootError(f"{kernel}: neither an ELF vmlinux nor an x86 bzImage")


def kernel_arguments(spec: MachineSpec, *, accel: str) -> str:
    """The kernel's command line.

    An oops ends the guest at once (``oops=panic panic=-1``, and QEMU does not
    restart it): after one the kernel may hold any lock, so whatever ran next
    would fail for the wrong reason, and the trace is complete by then.
    ``unknown_nmi_panic panic_print`` turn the NMI that is sent to a silent
    guest into a trace of every processor.  ``kunit.enable=0``: KUnit suites run before
    the agent, and one that crashes or takes long would cost every guest its boot; who
    wants them says so in ``spec.append``, since the last word counts.
    """
    words = [
        "console=ttyS0,115200",
        f"rdinit={AGENT}",
        "loglevel=7",
        "oops=panic",
        "panic=-1",
        "panic_print=0x40",
        "unknown_nmi_panic",
        "random.trust_cpu=on",
        # Tests make and drop network namespaces all the time; each waits for RCU.
        "rcupdate.rcu_expedited=1",
        "kunit.enable=0",
        *_NO_PROBING,
    ]
    if accel == "tcg":
        words += _TCG_CLOCK
    return " ".join([*words, *spec.append.split()])


def _escaped(path: Path) -> str:
    """A path as a value among options that commas separate."""
    return str(path).replace(",", ",,")


def qemu_arguments(qemu: str, spec: MachineSpec, layout: Layout, *, accel: str) -> tuple[str, ...]:
    """The whole command.  QEMU connects to sockets we listen on, and to our pipes."""
    arguments = [
        qemu,
        "-name",
        "ktest",
        "-no-user-config",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-vga",
        "none",
        "-machine",
        "q35,smm=off,vmport=off,hpet=off,usb=off,sata=off",
        *(
            ("-accel", "kvm", "-cpu", "host")
            if accel == "kvm"
            else ("-accel", "tcg", "-cpu", "max")
        ),
        "-smp",
        str(spec.cpus),
        "-m",
        str(spec.memory_mib),
        "-kernel",
        str(spec.kernel),
        "-initrd",
        str(layout.initramfs),
        "-append",
        kernel_arguments(spec, accel=accel),
        "-chardev",
        f"socket,id=monitor,path={_escaped(layout.monitor)}",
        "-mon",
        "chardev=monitor,mode=control",
        "-chardev",
        f"pipe,id=console,path={_escaped(layout.console)}",
        "-serial",
        "chardev:console",
        "-chardev",
        f"socket,id=control,path={_escaped(layout.control)}",
        "-device",
        "virtio-serial-pci,id=ports,max_ports=2",
        "-device",
        f"virtserialport,bus=ports.0,nr=1,chardev=control,name={PORT_NAME}",
    ]
    if spec.share is not None:
        share = _escaped(spec.share)
        arguments += [
            "-fsdev",
            f"local,id=share,path={share},security_model=none,readonly=on,multidevs=remap",
            "-device",
            f"virtio-9p-pci,fsdev=share,mount_tag={SHARE_TAG}",
        ]
    return (*arguments, *spec.hypervisor_args)
