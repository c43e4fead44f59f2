"""The system calls a sandboxed process may not make, as a classic BPF program for seccomp (Linux, x86-64 and arm64).

``sandbox/namespace.py`` passes the program to bubblewrap. The filter refuses calls that reach other processes' memory,
mount, make namespaces, load code into the kernel, hold memory that no limit counts (memfd, System V, pages lent to a
pipe), or open a kind of socket that a network namespace does not bind (vsock); every other call is allowed. Asking for
larger buffers of a socket succeeds and changes nothing, as it does past the kernel's maximum. The list follows what
container runtimes refuse by default (Docker's and Flatpak's profiles). ``clone3`` gives ENOSYS: its flags lie in
memory, where a filter cannot read them, and C libraries then use ``clone``, whose flags a filter can read.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import platform
import struct
from collections.abc import Callable, Iterable

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
    memfd_create 319 279, memfd_secret 447 447, vmsplice 278 75, shmget 29 194, msgget 68 186, semget 64 190
"""
REFUSED: dict[str, tuple[int | None, int | None]] = {}
for _line in _TABLE.strip().splitlines():
    for _name, _x86, _arm in map(str.split, _line.split(",")):
        REFUSED[_name] = (int(_x86), None if _arm == "-" else int(_arm))
Line = tuple[int, int, int, int]
CLONE, CLONE3, SOCKET, IOCTL, FORK, VFORK = (56, 220), (435, 435), (41, 198), (16, 29), (57, None), (58, None)
FCNTL, SETSOCKOPT = (72, 25), (54, 208)
F_SETPIPE_SZ, SOL_SOCKET, SO_SNDBUF, SO_RCVBUF = 1031, 1, 7, 8  # a buffer keeps the size that it is given at first
THREAD = 0x10000  # CLONE_THREAD
NO_NEW_PRIVS, SET_SECCOMP, MODE_FILTER = 38, 22, 2  # of prctl
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
    column = ARCHITECTURES[machine][0]
    lines = _refusing(machine, [numbers[column] for numbers in REFUSED.values()])
    lines += _by_argument(CLONE[column], 0, [(JUMP_ANY, 0, 1, NAMESPACES), _error(errno.EPERM)])
    kinds = [(JUMP_EQUAL, len(FAMILIES) - i, 0, family) for i, family in enumerate(FAMILIES)]
    lines += _by_argument(SOCKET[column], 0, [*kinds, _error(errno.EAFNOSUPPORT)])
    keys = [(JUMP_EQUAL, 1, 0, TIOCSTI), (JUMP_EQUAL, 0, 1, TIOCLINUX), _error(errno.EPERM)]
    lines += _by_argument(IOCTL[column], 1, keys)
    lines += _by_argument(FCNTL[column], 1, [(JUMP_EQUAL, 0, 1, F_SETPIPE_SZ), _error(errno.EPERM)])
    sizes = [(LOAD, 0, 0, ARGUMENTS + 16), (JUMP_EQUAL, 1, 0, SO_SNDBUF), (JUMP_EQUAL, 0, 1, SO_RCVBUF), _error(0)]
    lines += _by_argument(SETSOCKOPT[column], 1, [(JUMP_EQUAL, 0, len(sizes), SOL_SOCKET), *sizes])
    lines += [(RETURN, 0, 0, ALLOW)]
    return _packed(lines)


def childless(machine: str) -> bytes:
    """A filter under which a program makes threads, but no process and no socket: it runs no other program."""
    column = ARCHITECTURES[machine][0]
    lines = _refusing(machine, [pair[column] for pair in (FORK, VFORK, SOCKET)])
    lines += _by_argument(CLONE[column], 0, [(JUMP_ANY, 1, 0, THREAD), _error(errno.EPERM)])
    return _packed([*lines, (RETURN, 0, 0, ALLOW)])


@functools.cache
def refuse_children() -> Callable[[], None]:
    """For ``preexec_fn`` of a program that needs no other (git reading files): it puts the filter on the new process.

    Where the kernel has no filters, or on another machine than the sandbox's, it does nothing: it is a second wall.
    All that needs Python's memory and locks is done here, before the fork.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        return lambda: None
    code = childless(machine)
    held = ctypes.create_string_buffer(code, len(code))
    order = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
    prctl = ctypes.CDLL(None).prctl

    def install(held: object = held) -> None:  # the order points into it
        prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(SET_SECCOMP, MODE_FILTER, order, 0, 0)

    return install


def _refusing(machine: str, numbers: Iterable[int | None]) -> list[Line]:
    """The beginning of a filter: another architecture ends the process, these calls give EPERM, clone3 ENOSYS."""
    column, audit = ARCHITECTURES[machine]
    lines = [(LOAD, 0, 0, ARCH), (JUMP_EQUAL, 1, 0, audit), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        lines += [(JUMP_FROM, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for number in numbers:
        if number is not None:
            lines += [(JUMP_EQUAL, 0, 1, number), _error(errno.EPERM)]
    return [*lines, (JUMP_EQUAL, 0, 1, CLONE3[column]), _error(errno.ENOSYS)]


def _packed(lines: list[Line]) -> bytes:
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _error(number: int) -> Line:
    return RETURN, 0, 0, ERRNO | number


def _by_argument(number: int, argument: int, test: list[Line]) -> list[Line]:
    """``test`` on the low 32 bits of an argument of one call; the call's number is loaded again after it."""
    load = (LOAD, 0, 0, ARGUMENTS + 8 * argument)
    return [(JUMP_EQUAL, 0, len(test) + 2, number), load, *test, (LOAD, 0, 0, NUMBER)]
