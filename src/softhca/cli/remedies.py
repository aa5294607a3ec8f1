"""What to do about an error: a few words behind its message, where there is something to be done."""

from __future__ import annotations

import errno

BY_NUMBER = {
    errno.EADDRINUSE: "another program has the address: name another one in SOFTHCA_DEVICES, or "
    "see who has it (ss -lunp, softhca doctor)",
    errno.EADDRNOTAVAIL: "this machine does not have that address: ip address lists those that it has",
    errno.EMFILE: "this process may have no more descriptors: ulimit -n 4096",
    errno.ENFILE: "the machine has no more descriptors: end programs, or raise fs.file-max as root",
    errno.ENOMEM: "ask for fewer or smaller queues, or raise the limits that softhca doctor shows",
    errno.ENOSPC: "what was written does not fit: df -h shows where there is room",
    errno.ENETUNREACH: "there is no route to that address: ip route get ADDRESS",
    errno.EHOSTUNREACH: "there is no route to that address: ip route get ADDRESS",
}
"""By the number of an error of the system, or of the verbs."""


def remedy_of(error: BaseException) -> str:
    """What to do about ``error``; empty where nothing is known.

    A `CommandError` may bring its own remedy; what has caused an error says what its number means.
    """
    seen: BaseException | None = error
    while seen is not None:
        own = getattr(seen, "remedy", "")
        number = getattr(seen, "error_code", None) or getattr(seen, "errno", None)
        found = own or BY_NUMBER.get(number or 0, "")
        if found:
            return str(found)
        seen = seen.__cause__
    return ""
