"""Work requests as they are posted, and completions as they are polled: what verbs objects are made of.

The verbs' work requests and completions stand on these classes, so that a chain is encoded, and completions
are taken, in compiled code that knows where each value is.  A request's values are Python objects until it is
posted, and are checked then; a completion's are numbers.
"""

Element = tuple[int, int, int]
"""Address, length in bytes, L_Key."""


class WorkRequest:
    """What sends and receives share: ``wr_id``, ``sges``, a tuple of (address, length, L_Key), and
    ``following``, the next request of the chain or None.

    A send's ``sges`` may be bytes: they are its inline data."""

    __slots__ = ("_all", "following", "sges", "wr_id")


class SendRequest(WorkRequest):
    """One send: ``opcode`` … ``swap`` under the verbs' names.

    ``send_flags`` are ``ibv_send_flags``; ``imm_data`` is in network byte order where the opcode has an
    immediate, else a key in host order; ``ah`` is None or has a ``number``.
    """

    __slots__ = (
        "ah",
        "compare_add",
        "imm_data",
        "opcode",
        "remote_addr",
        "remote_qkey",
        "remote_qpn",
        "remote_rkey",
        "send_flags",
        "swap",
    )


class ReceiveRequest(WorkRequest):
    """One receive."""

    __slots__ = ()


class Completion:
    """A work completion: the fields of ``ibv_wc`` under its names, as they stand in the entry.

    ``imm_data`` is the immediate in host byte order, or the invalidated key; ``timestamp_ns`` the adapter's
    clock.
    """

    __slots__ = (
        "byte_len",
        "dlid_path_bits",
        "imm_data",
        "opcode",
        "pkey_index",
        "qp_num",
        "sl",
        "slid",
        "src_qp",
        "status",
        "timestamp_ns",
        "vendor_err",
        "wc_flags",
        "wr_id",
    )
