"""The system calls a sandboxed process may not make, as a classic BPF program for seccomp (Linux, x86-64 and arm64).

``sandbox/namespace.py`` passes the program to bubblewrap. The filter refuses calls that reach other processes' memory,
mount, make namespaces, load code into the kernel, hold memory that no limit counts (memfd, System V), or open a kind of
socket that a network namespace does not bind (vsock); every other call is allowed. The list follows what container
runtimes refuse by default (Docker's and Flatpak's profiles). ``clone3`` gives ENOSYS: its flags lie in memory, where a
filter cannot read them, and C libraries then use ``clone``, whose flags a filter can read.
"""

from __future__ import annotations

import errno
import platform
import struct

from clew.core.errors import WorldError

# name, number on x86-64, on arm64 (linux/arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h); -: has none
_TABLE = """
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438, kcmp 312 272
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429
    fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442
    unshare 272 97, setns 308 268, name_to_handle_at 303 264, open_by_handle_at 304 265
    add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282
    io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427
    init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294
    reboot 169 142, swapon 167 224, swapoff 168 225, syslog 103 116, acct 163 89, quotactl 179 60, personality 135 92
    iopl 172 -, ioperm 173 -, modify_ldt 154 -, uselib 134 -
    memfd_create 319 279, memfd_secret 447 447, shmget 29 194, msgget 68 186, semget 64 190
"""
REFUSED: dict[str, tuple[int | None, int | None]] = {}
for _line in _TABLE.strip().splitlines():
    for _name, _x86, _arm in map(str.split, _line.split(",")):
        REFUSED[_name] = (int(_x86), None if _arm == "-" else int(_arm))
CLONE, CLONE3, SOCKET, IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink: those that a network namespace bounds
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # put characters into the terminal's input
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000  # numbers of the x32 interface begin here; they would pass a list of x86-64 numbers

LOAD, JUMP_EQUAL, JUMP_FROM, JUMP_ANY, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, JMP|JEQ|K, JGE, JSET, RET
NUMBER, ARCH, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; arguments are 8 bytes each, low half first
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # SECCOMP_RET_*; ERRNO | number


def program(machine: str = "") -> bytes:
    """The filter as ``struct sock_filter`` entries (8 bytes each), for ``bwrap --seccomp`` or prctl.

    Args:
        machine: as ``platform.machine()`` says it; empty: this one.

    Raises:
        WorldError: the numbers of this machine's system calls are not known here.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        remedy = f"The sandbox runs on {' and '.join(ARCHITECTURES)}."
        raise WorldError(f"no system call filter for {machine}", remedy=remedy)
    column, audit = ARCHITECTURES[machine]
    refused = [numbers[column] for numbers in REFUSED.values()]
    lines = [(LOAD, 0, 0, ARCH), (JUMP_EQUAL, 1, 0, audit), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        lines += [(JUMP_FROM, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for number in refused:
        if number is not None:
            lines += [(JUMP_EQUAL, 0, 1, number), _error(errno.EPERM)]
    lines += [(JUMP_EQUAL, 0, 1, CLONE3[column]), _error(errno.ENOSYS)]
    lines += _by_argument(CLONE[column], 0, [(JUMP_ANY, 0, 1, NAMESPACES), _error(errno.EPERM)])
    kinds = [(JUMP_EQUAL, len(FAMILIES) - i, 0, family) for i, family in enumerate(FAMILIES)]
    lines += _by_argument(SOCKET[column], 0, [*kinds, _error(errno.EAFNOSUPPORT)])
    keys = [(JUMP_EQUAL, 1, 0, TIOCSTI), (JUMP_EQUAL, 0, 1, TIOCLINUX), _error(errno.EPERM)]
    lines += [*_by_argument(IOCTL[column], 1, keys), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _error(number: int) -> tuple[int, int, int, int]:
    return RETURN, 0, 0, ERRNO | number


def _by_argument(number: int, argument: int, test: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """``test`` on the low 32 bits of an argument of one call; the call's number is loaded again after it."""
    load = (LOAD, 0, 0, ARGUMENTS + 8 * argument)
    return [(JUMP_EQUAL, 0, len(test) + 2, number), load, *test, (LOAD, 0, 0, NUMBER)]
