# SPDX-License-Identifier: GPL-2.0-only
"""What kernels print when something is wrong, of every kind, on two architectures."""

from __future__ import annotations

from ktest_ntcopy.machine.base import ConsoleLine
from ktest_ntcopy.results.splats import Kind


def console(text: str, *, stamp: float | None = 12.5) -> list[ConsoleLine]:
    """Console lines of a message, stamped as printk does unless told otherwise."""
    prefix = "" if stamp is None else f"[{stamp:12.6f}] "
    return [ConsoleLine(float(n), prefix + x) for n, x in enumerate(text.strip("\n").split("\n"))]


X86_OOPS = """
BUG: kernel NULL pointer dereference, address: 0000000000000018
#PF: supervisor read access in kernel mode
#PF: error_code(0x0000) - not-present page
PGD 0 P4D 0
Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI
CPU: 1 UID: 0 PID: 77 Comm: msg_ntcopy Not tainted 6.12.117 #1
RIP: 0010:skb_do_copy_data_nocache+0x1c/0x90
Code: 00 00 90 90 90 90 90 90 90
RSP: 0018:ffffc900001abc00 EFLAGS: 00010246
Call Trace:
 <TASK>
 ? page_fault_oops+0x151/0x520
 ? asm_exc_page_fault+0x26/0x30
 tcp_sendmsg_locked+0x4a1/0xd60
 tcp_sendmsg+0x2b/0x40
 __sys_sendto+0x1d8/0x1e0
 </TASK>
---[ end trace 0000000000000000 ]---
"""
X86_WARN_612 = """
------------[ cut here ]------------
WARNING: CPU: 0 PID: 41 at net/core/stream.c:212 sk_stream_kill_queues+0x50/0x60
Modules linked in:
CPU: 0 UID: 0 PID: 41 Comm: msg_ntcopy Not tainted 6.12.117 #1
RIP: 0010:sk_stream_kill_queues+0x50/0x60
Call Trace:
 <TASK>
 inet_csk_destroy_sock+0x6e/0x150
 __tcp_close+0x3a1/0x450
 </TASK>
---[ end trace 0000000000000000 ]---
"""
X86_WARN_73 = """
------------[ cut here ]------------
WARNING: net/core/stream.c:214 at sk_stream_kill_queues+0x50/0x60, CPU#1: msg_ntcopy/41
Modules linked in:
CPU: 1 UID: 0 PID: 41 Comm: msg_ntcopy Not tainted 7.3.4 #1
RIP: 0010:sk_stream_kill_queues+0x50/0x60
Call Trace:
 <TASK>
 inet_csk_destroy_sock+0x6e/0x150
 __tcp_close+0x3a1/0x450
 </TASK>
---[ end trace 0000000000000000 ]---
"""
ARM64_OOPS = """
Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008
Mem abort info:
  ESR = 0x0000000096000004
Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP
CPU: 0 UID: 0 PID: 120 Comm: msg_ntcopy Not tainted 6.12.117 #1
pstate: 60400005 (nZCv daif +PAN -UAO -TCO -DIT -SSBS BTYPE=--)
pc : unix_stream_sendmsg+0x1a4/0x5c0
lr : unix_stream_sendmsg+0x17c/0x5c0
Call trace:
 unix_stream_sendmsg+0x1a4/0x5c0
 __sock_sendmsg+0x64/0xc0
 el0_svc+0x38/0x110
Code: f9400260 b4000040 (f9400400)
---[ end trace 0000000000000000 ]---
"""
ARM64_WARN_612 = """
------------[ cut here ]------------
WARNING: CPU: 3 PID: 9 at net/ipv4/af_inet.c:156 inet_sock_destruct+0x190/0x1c0
pc : inet_sock_destruct+0x190/0x1c0
Call trace:
 inet_sock_destruct+0x190/0x1c0
 __sk_destruct+0x30/0x240
---[ end trace 0000000000000000 ]---
"""
ARM64_WARN_73 = """
------------[ cut here ]------------
WARNING: net/ipv4/af_inet.c:158 at inet_sock_destruct+0x190/0x1c0, CPU#3: ksoftirqd/3/9
pc : inet_sock_destruct+0x190/0x1c0
Call trace:
 inet_sock_destruct+0x190/0x1c0
 __sk_destruct+0x30/0x240
---[ end trace 0000000000000000 ]---
"""
KASAN = """
==================================================================
BUG: KASAN: slab-out-of-bounds in copy_from_iter_nt+0x5b/0x1a0
Write of size 8 at addr ffff888004b2f1c0 by task msg_ntcopy/55

CPU: 0 UID: 0 PID: 55 Comm: msg_ntcopy Not tainted 6.12.117 #1
Call Trace:
 <TASK>
 dump_stack_lvl+0x53/0x70
 print_report+0xce/0x660
 kasan_report+0xbd/0xf0
 copy_from_iter_nt+0x5b/0x1a0
 skb_copy_datagram_from_iter+0x11/0x20
 </TASK>

Allocated by task 55:
 kasan_save_stack+0x24/0x50
The buggy address belongs to the object at ffff888004b2f180
==================================================================
"""
LOCKDEP_CIRCULAR = """
======================================================
WARNING: possible circular locking dependency detected
6.12.117 #1 Not tainted
------------------------------------------------------
msg_ntcopy/61 is trying to acquire lock:
ffff888003c0d130 (sk_lock-AF_INET){+.+.}-{0:0}, at: tcp_sendmsg+0x1b/0x40

but task is already holding lock:
ffffffff82a6c0a8 (rtnl_mutex){+.+.}-{3:3}, at: rtnl_lock+0x12/0x20

stack backtrace:
CPU: 0 UID: 0 PID: 61 Comm: msg_ntcopy Not tainted 6.12.117 #1
Call Trace:
 <TASK>
 dump_stack_lvl+0x53/0x70
 print_circular_bug+0x2d3/0x3d0
 check_noncircular+0x13a/0x160
 __lock_acquire+0x14d1/0x2190
 lock_acquire+0xd1/0x2e0
 lock_sock_nested+0x3a/0xb0
 tcp_sendmsg+0x1b/0x40
 </TASK>
"""
SUSPICIOUS_RCU = """
=============================
WARNING: suspicious RCU usage
6.12.117 #1 Not tainted
-----------------------------
net/core/dev.c:5000 suspicious rcu_dereference_check() usage!
"""
RCU_STALL = """
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: \t0-....: (5250 ticks this GP) idle=1b4c/1/0x4000000000000000 softirq=200/200 fqs=2625
rcu: \t(t=5251 jiffies g=-199 q=3 ncpus=2)
CPU: 0 UID: 0 PID: 88 Comm: msg_ntcopy Not tainted 6.12.117 #1
"""
SOFT_LOCKUP = """
watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [msg_ntcopy:90]
CPU: 1 UID: 0 PID: 90 Comm: msg_ntcopy Not tainted 6.12.117 #1
RIP: 0010:tcp_sendmsg_locked+0x100/0xd60
Call Trace:
 <TASK>
 tcp_sendmsg+0x2b/0x40
 </TASK>
"""
HUNG_TASK = """
INFO: task msg_ntcopy:93 blocked for more than 120 seconds.
      Not tainted 6.12.117 #1
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
task:msg_ntcopy      state:D stack:0     pid:93    tgid:93    ppid:1      flags:0x00004002
Call Trace:
 <TASK>
 __schedule+0x3f8/0xb70
 rtnl_lock+0x12/0x20
 </TASK>
"""
ATOMIC = """
BUG: scheduling while atomic: msg_ntcopy/94/0x00000002
Modules linked in:
Call Trace:
 <TASK>
 dump_stack_lvl+0x53/0x70
 __schedule_bug+0x50/0x60
 lock_sock_nested+0x3a/0xb0
 </TASK>
"""
GPF_61 = """
general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP
CPU: 0 PID: 95 Comm: msg_ntcopy Not tainted 6.1.192 #1
RIP: 0010:__skb_unlink+0x10/0x40
---[ end trace 0000000000000000 ]---
"""
GPF_612 = """
Oops: general protection fault, probably for non-canonical address 0xdead0108: 0000 [#1] SMP KASAN
KASAN: maybe wild-memory-access in range [0xdead000000000108-0xdead00000000010f]
RIP: 0010:__skb_unlink+0x10/0x40
---[ end trace 0000000000000000 ]---
"""
BUG_ON = """
------------[ cut here ]------------
kernel BUG at net/core/skbuff.c:206!
Oops: invalid opcode: 0000 [#1] PREEMPT SMP
RIP: 0010:skb_panic+0x48/0x4a
Call Trace:
 <TASK>
 skb_put+0x3d/0x40
 </TASK>
---[ end trace 0000000000000000 ]---
"""
UBSAN = """
------------[ cut here ]------------
UBSAN: array-index-out-of-bounds in net/core/sock.c:12:7
index 9 is out of range for type 'int [8]'
Call Trace:
 <TASK>
 dump_stack_lvl+0x53/0x70
 __ubsan_handle_out_of_bounds+0x95/0xd0
 sock_setsockopt+0x20/0x40
 </TASK>
---[ end trace ]---
"""
NETDEVICE = "unregister_netdevice: waiting for veth0 to become free. Usage count = 2"
REF_TRACKER = """
ref_tracker: veth0@ffff888004d1c550 has 1/1 users at
     dev_get_by_name+0x4c/0x90
     packet_bind+0x50/0xa0
ref_tracker: veth0@ffff888004d1c550 has 2/2 users at
     sk_alloc+0x4c/0x90
"""
SAMPLES = {
    "x86 oops": (X86_OOPS, Kind.OOPS, "skb_do_copy_data_nocache"),
    "x86 WARN 6.12": (X86_WARN_612, Kind.WARNING, "sk_stream_kill_queues"),
    "x86 WARN 7.3": (X86_WARN_73, Kind.WARNING, "sk_stream_kill_queues"),
    "arm64 oops": (ARM64_OOPS, Kind.OOPS, "unix_stream_sendmsg"),
    "arm64 WARN 6.12": (ARM64_WARN_612, Kind.WARNING, "inet_sock_destruct"),
    "arm64 WARN 7.3": (ARM64_WARN_73, Kind.WARNING, "inet_sock_destruct"),
    "UBSAN": (UBSAN, Kind.UBSAN, "sock_setsockopt"),
    "UBSAN without a trace": ("UBSAN: shift-out-of-bounds in a/b.c:1:2", Kind.UBSAN, None),
    "RCU stall without a trace": (RCU_STALL, Kind.RCU_STALL, None),
    "RCU stall elsewhere": (
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        Kind.RCU_STALL,
        None,
    ),
    "RCU expedited stall": (
        "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 1-.... }",
        Kind.RCU_STALL,
        None,
    ),
    "panic without a trace": (
        "Kernel panic - not syncing: VFS: Unable to mount root fs",
        Kind.PANIC,
        None,
    ),
    "netdevice": (NETDEVICE, Kind.LEAK, None),
    "KASAN": (KASAN, Kind.KASAN, "copy_from_iter_nt"),
    "KASAN hardware": ("BUG: KASAN: invalid-access", Kind.KASAN, None),
    "KCSAN": ("BUG: KCSAN: data-race in tcp_poll / tcp_sendmsg", Kind.KCSAN, None),
    "KMSAN": ("BUG: KMSAN: uninit-value in tcp_recvmsg+0x1/0x2", Kind.KMSAN, None),
    "KFENCE": ("BUG: KFENCE: use-after-free read in skb_put+0x1/0x2", Kind.KFENCE, None),
    "SLUB": ("BUG kmalloc-64 (Not tainted): Right Redzone overwritten", Kind.SLAB, None),
    "lockdep": (LOCKDEP_CIRCULAR, Kind.LOCKDEP, "lock_sock_nested"),
    "suspicious RCU": (SUSPICIOUS_RCU, Kind.LOCKDEP, None),
    "lock state": ("WARNING: inconsistent lock state", Kind.LOCKDEP, None),
    "lock order": (
        "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
        Kind.LOCKDEP,
        None,
    ),
    "wait context": ("[ BUG: Invalid wait context ]", Kind.LOCKDEP, None),
    "locks at exit": ("WARNING: msg_ntcopy/7 still has locks held!", Kind.LOCKDEP, None),
    "non-static key": ("INFO: trying to register non-static key.", Kind.LOCKDEP, None),
    "soft lockup": (SOFT_LOCKUP, Kind.LOCKUP, "tcp_sendmsg_locked"),
    "hard lockup": ("watchdog: Watchdog detected hard LOCKUP on cpu 1", Kind.LOCKUP, None),
    "workqueue lockup": ("BUG: workqueue lockup - pool cpus=0 stuck", Kind.LOCKUP, None),
    "hung task": (HUNG_TASK, Kind.HUNG_TASK, "__schedule"),
    "atomic": (ATOMIC, Kind.ATOMIC, "lock_sock_nested"),
    "sleeping": (
        "BUG: sleeping function called from invalid context at net/core/sock.c:3623",
        Kind.ATOMIC,
        None,
    ),
    "preemptible": (
        "BUG: using smp_processor_id() in preemptible [00000000] code: msg_ntcopy/7",
        Kind.ATOMIC,
        None,
    ),
    "GPF 6.1": (GPF_61, Kind.OOPS, "__skb_unlink"),
    "GPF 6.12": (GPF_612, Kind.OOPS, "__skb_unlink"),
    "page fault": (
        "BUG: unable to handle page fault for address: ffffed1000000000",
        Kind.OOPS,
        None,
    ),
    "BUG()": (BUG_ON, Kind.BUG, "skb_panic"),
    "bad page": ("BUG: Bad page state in process msg_ntcopy  pfn:04b2f", Kind.BUG, None),
    "divide": ("divide error: 0000 [#1] PREEMPT SMP", Kind.OOPS, None),
    "kmemleak": (
        "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        Kind.LEAK,
        None,
    ),
    "ref_tracker": (REF_TRACKER, Kind.LEAK, None),
    "live socket": ("IPv4: Attempt to release TCP socket in state 1 0x1", Kind.BUG, None),
    "lost heading x86": ("Call Trace:\n <TASK>\n foo+0x1/0x2\n </TASK>", Kind.TRACE, "foo"),
    "lost heading arm64": ("Call trace:\n foo+0x1/0x2", Kind.TRACE, "foo"),
}
