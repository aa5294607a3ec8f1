"""What of the transport a channel adapter has: a host's all of it, a target's what its maker chose.

A TCA has datagrams in any case (C9-171), raw ones too (o9-147); unreliable connections, RDMA over them and
all of reliable connections are options, and the statements about them (o9-115 to o9-143) hold for a TCA that
has them.
What an adapter has not got nobody can use: no queue pair of that service can be made, no right can be given
for that operation, so that a peer's request for it is an operation that the queue pair does not support
(C9-168, C9-190), and an own work request for it ends as an operation error.
"""

from __future__ import annotations

from dataclasses import dataclass

from softhca.memory.regions import FLUSH_GLOBAL, FLUSH_PERSISTENT, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues.operations import ATOMIC, ATOMIC_WRITE, FLUSH, OPERATIONS, READ, WRITE
from softhca.transport.services import SERVICES
from softhca.transport.states import RAW, RC, UC, UD

HCA = "hca"
TCA = "tca"

RC_OPTION, UC_OPTION, WRITE_OPTION, READ_OPTION, ATOMIC_OPTION = "rc", "uc", "write", "read", "atomic"

OPTIONS: dict[str, str] = {
    RC_OPTION: "reliable connections",
    UC_OPTION: "unreliable connections",
    WRITE_OPTION: "RDMA WRITE",
    READ_OPTION: "RDMA READ",
    ATOMIC_OPTION: "atomic operations",
}
"""What a TCA may have beyond datagrams, in the order in which it is shown."""


def _of_kind(kind: int) -> frozenset[int]:
    return frozenset(row.opcode for row in OPERATIONS.values() if row.kind == kind)


# option → work requests, the rights that a queue pair gives for it, and the services that carry it
_OPERATIONS: dict[str, tuple[frozenset[int], int, frozenset[str]]] = {
    WRITE_OPTION: (
        _of_kind(WRITE) | _of_kind(ATOMIC_WRITE) | _of_kind(FLUSH),
        REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT,
        frozenset({RC_OPTION, UC_OPTION}),
    ),
    READ_OPTION: (_of_kind(READ), REMOTE_READ, frozenset({RC_OPTION})),
    ATOMIC_OPTION: (
        _of_kind(ATOMIC),
        REMOTE_ATOMIC,
        frozenset({RC_OPTION}),
    ),
}


@dataclass(frozen=True)
class Profile:
    """``kind`` HCA has everything; TCA has datagrams and what ``options`` (keys of `OPTIONS`) name.

    ValueError for another kind, an option that there is not, an HCA with options, and an operation
    without a service that carries it.
    """

    kind: str = HCA
    options: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.kind not in (HCA, TCA):
            raise ValueError(f"profile {self.kind!r} is neither {HCA!r} nor {TCA!r}")
        if self.kind == HCA:
            if self.options:
                raise ValueError("an HCA has everything: it takes no options")
            return
        for option in sorted(self.options):
            if option not in OPTIONS:
                raise ValueError(f"{option!r} is no option of a TCA ({', '.join(OPTIONS)})")
            carriers = _OPERATIONS[option][2] if option in _OPERATIONS else self.options
            if not carriers & self.options:
                raise ValueError(f"{option!r} needs {' or '.join(sorted(carriers))}")

    @staticmethod
    def of(text: str) -> Profile:
        """The profile that ``hca``, ``tca`` or ``tca+uc+write`` names.  ValueError as above."""
        kind, *options = text.split("+")
        return Profile(kind, frozenset(options))

    def has(self, option: str) -> bool:
        """Whether there is what ``option`` names."""
        return self.kind == HCA or option in self.options

    @property
    def services(self) -> frozenset[int]:
        """The services whose queue pairs can be made."""
        if self.kind == HCA:
            return frozenset(row.number for row in SERVICES.values())
        options = {RC: RC_OPTION, UC: UC_OPTION}
        return frozenset({UD, RAW} | {service for service, option in options.items() if self.has(option)})

    @property
    def rights(self) -> int:
        """Remote rights that a queue pair can give (``ibv_access_flags``)."""
        return sum(right for option, (_, right, _) in _OPERATIONS.items() if self.has(option))

    @property
    def withheld_operations(self) -> int:
        """Bit n set where there is no work request opcode n on any service."""
        return sum(
            1 << opcode
            for option, (opcodes, _, _) in _OPERATIONS.items()
            if not self.has(option)
            for opcode in opcodes
        )

    def __str__(self) -> str:
        """As `of` takes it."""
        return "+".join([self.kind, *(option for option in OPTIONS if option in self.options)])
