"""Enters the restrictions of a unit that are no mounts, then becomes the command: what systemd does between fork and exec.

Run by test_sandbox.py inside bubblewrap: `python confined.py '{"uid": …, "calls": […]}' command …`. Standard library only, and libseccomp
through ctypes.
"""

import ctypes
import errno
import json
import os
import sys
from ctypes.util import find_library

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 38, 24, 65, 1
SCMP_ACT_ALLOW, SCMP_ACT_ERRNO = 0x7FFF0000, 0x00050000


def main() -> None:
    wanted, command = json.loads(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # beyond the last one: EINVAL
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(wanted["uid"])
        os.setuid(wanted["uid"])  # drops every capability
    os.umask(0o077)
    must(libc, libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    must(libc, libc.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0), "memory-deny-write-execute (Linux 6.3)")
    filter_calls(wanted["calls"])
    os.execv(command[0], command)


def must(libc: ctypes.CDLL, answer: int, what: str) -> None:
    if answer != 0:
        sys.exit(f"confined: {what}: {os.strerror(ctypes.get_errno())}")


def filter_calls(names: list[str]) -> None:
    """Allow these system calls; all others answer EPERM, as SystemCallErrorNumber= says."""
    seccomp = ctypes.CDLL(find_library("seccomp") or "libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(SCMP_ACT_ERRNO | errno.EPERM))
    for name in names:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # others do not exist on this architecture
            seccomp.seccomp_rule_add(context, SCMP_ACT_ALLOW, number, 0)
    if seccomp.seccomp_load(context) != 0:
        sys.exit("confined: the system call filter was not accepted")


if __name__ == "__main__":
    main()
