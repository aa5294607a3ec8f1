"""Text for numbers: GIDs, QP types and states, MTUs, rights."""

import sys
from collections.abc import Callable, Mapping

from softhca.verbs.device_enums import ibv_access_flags, ibv_rereg_mr_err_code
from softhca.verbs.pyverbs_error import PyverbsUserError
from softhca.verbs.queue_enums import ibv_qp_state, ibv_qp_type

GID_BYTES = 16

_QP_TYPES: dict[int, str] = {
    ibv_qp_type.IBV_QPT_RC: "RC",
    ibv_qp_type.IBV_QPT_UC: "UC",
    ibv_qp_type.IBV_QPT_UD: "UD",
    ibv_qp_type.IBV_QPT_RAW_PACKET: "Raw Packet",
    ibv_qp_type.IBV_QPT_XRC_SEND: "XRCD_SEND",
    ibv_qp_type.IBV_QPT_XRC_RECV: "XRCD_RECV",
    ibv_qp_type.IBV_QPT_DRIVER: "Driver QP",
}
_QP_STATES: dict[int, str] = {
    ibv_qp_state.IBV_QPS_RESET: "Reset",
    ibv_qp_state.IBV_QPS_INIT: "Init",
    ibv_qp_state.IBV_QPS_RTR: "RTR",
    ibv_qp_state.IBV_QPS_RTS: "RTS",
    ibv_qp_state.IBV_QPS_SQD: "SQD",
    ibv_qp_state.IBV_QPS_SQE: "SQE",
    ibv_qp_state.IBV_QPS_ERR: "Error",
    ibv_qp_state.IBV_QPS_UNKNOWN: "Unknown",
}
_ACCESS: dict[int, str] = {
    ibv_access_flags.IBV_ACCESS_LOCAL_WRITE: "Local write",
    ibv_access_flags.IBV_ACCESS_REMOTE_WRITE: "Remote write",
    ibv_access_flags.IBV_ACCESS_REMOTE_READ: "Remote read",
    ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC: "Remote atomic",
    ibv_access_flags.IBV_ACCESS_MW_BIND: "MW bind",
    ibv_access_flags.IBV_ACCESS_ZERO_BASED: "Zero based",
    ibv_access_flags.IBV_ACCESS_ON_DEMAND: "On demand",
}
_MIGRATION = {0: "Migrated", 1: "Re-arm", 2: "Armed"}
_MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}


def be64toh(num: int) -> int:
    """A 64-bit number as read from big-endian memory, in host order."""
    return int.from_bytes(num.to_bytes(8, sys.byteorder), "big")


def htonl(num: int) -> int:
    """A 32-bit number in the other of host and network order (its own inverse)."""
    return int.from_bytes(num.to_bytes(4, "big"), sys.byteorder)


def gid_from_bytes(raw: bytes) -> str:
    """Sixteen bytes as eight groups of four hexadecimal digits."""
    digits = bytes(raw).hex()
    return ":".join(digits[i : i + 4] for i in range(0, 32, 4))


def gid_to_bytes(text: str) -> bytes:
    """The sixteen bytes of a GID of eight words; `PyverbsUserError` where it has not eight words of
    four characters, ValueError where they are no hexadecimal digits.
    """
    return bytes(int(each, 16) for each in gid_str_to_array(text))


def gid_str(subnet_prefix: int, interface_id: int) -> str:
    """A GID from its two halves as libibverbs holds them: 64-bit numbers read from big-endian memory."""
    return gid_from_bytes(subnet_prefix.to_bytes(8, sys.byteorder) + interface_id.to_bytes(8, sys.byteorder))


def gid_str_to_array(val: str) -> list[str]:
    """The sixteen bytes of ``xxxx:…:xxxx`` (eight words) as two-digit strings."""
    words = val.split(":")
    if len(words) != 8 or any(len(word) != 4 for word in words):
        raise PyverbsUserError(f"Invalid GID value ({val})")
    digits = "".join(words)
    try:
        bytes.fromhex(digits)
    except ValueError:
        raise ValueError(f"invalid literal for int() with base 16: {digits!r}") from None
    return [digits[i : i + 2] for i in range(0, 32, 2)]


def flags_text(flags: int, names: Mapping[int, str]) -> str:
    """The names of the bits that are set, each followed by a space."""
    return "".join(f"{name} " for bit, name in names.items() if flags & bit)


def bits_text(flags: int, naming: Callable[[int], str]) -> str:
    """Every bit that is set, by the name that ``naming`` gives it, else as a number: for refusals."""
    bits = (1 << place for place in range(int(flags).bit_length()) if int(flags) >> place & 1)
    return ", ".join(naming(bit).strip() or hex(bit) for bit in bits)


def qp_type_to_str(qp_type: int) -> str:
    """Short name of an ``ibv_qp_type``."""
    return _QP_TYPES.get(qp_type, f"Unknown ({qp_type})")


def qp_state_to_str(qp_state: int) -> str:
    """Short name of an ``ibv_qp_state``."""
    return _QP_STATES.get(qp_state, f"Unknown ({qp_state})")


def mtu_to_str(mtu: int) -> int:
    """Bytes of an ``ibv_mtu`` code, 0 when there is no such code."""
    return _MTU_BYTES.get(mtu, 0)


def access_flags_to_str(flags: int) -> str:
    """Names of the rights in ``flags``."""
    return flags_text(flags, _ACCESS)


def mig_state_to_str(mig: int) -> str:
    """Name of an ``ibv_mig_state``."""
    return _MIGRATION.get(mig, f"Unknown ({mig})")


def rereg_error_to_str(error: int) -> str:
    """Name of an ``ibv_rereg_mr_err_code``."""
    try:
        return ibv_rereg_mr_err_code(error).name
    except ValueError:
        return f"Unknown error ({error})"


def lines(pairs: Mapping[str, object], width: int = 22, indent: str = "") -> str:
    """One ``name: value`` line for each pair, names padded to ``width``."""
    return "".join(f"{indent}{name:{width}}: {value!s:<20}\n" for name, value in pairs.items())
