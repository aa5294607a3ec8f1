"""An initiator's side of one SRP channel, without queue pair, thread or clock: tags, the request limit, and
what a target says.

Nothing that a target sends is believed unchecked: MessageError is the end of the channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softhca.storage import descriptors, scsi, srp
from softhca.storage.descriptors import DIRECT, INDIRECT, NO_DATA, Range
from softhca.storage.errors import MessageError
from softhca.storage.scsi import Sense
from softhca.wire.errors import WireError

MOST_CREDIT = 1 << 20
MOST_MESSAGE_BYTES = 4096
"""The longest messages that a target may say it sends."""

NOTHING, FROM_TARGET, TO_TARGET = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Finished:
    """A command has ended: its ``tag``, status, sense data, how many bytes less than its buffer were moved,
    and whether the target would have moved more.
    """

    tag: int
    status: int
    sense: Sense | None
    residual: int
    over: bool

    @property
    def good(self) -> bool:
        """Whether it did all that it should."""
        return self.status == scsi.GOOD and not self.over


def login(initiator: bytes, target: bytes, message_bytes: int) -> srp.LoginRequest:
    """The login of a channel that ends all others between these ports, so that no older request has any
    effect after it."""
    return srp.LoginRequest(
        tag=0,
        max_it_bytes=message_bytes,
        required_formats=srp.DIRECT_BUFFERS | srp.INDIRECT_BUFFERS,
        multi_channel_action=srp.SINGLE_CHANNEL,
        initiator_port=initiator,
        target_port=target,
    )


def accepted(private_data: bytes) -> srp.LoginResponse:
    """The response in a reply's private data; MessageError for one that cannot be."""
    try:
        found = srp.LoginResponse.decode(private_data)
    except WireError as error:
        raise MessageError(str(error)) from None
    if found.type != srp.LOGIN_RSP:
        raise MessageError(f"a login is answered with {found.type:#x}")
    if not 0 < found.request_limit_delta <= MOST_CREDIT:
        raise MessageError(f"a request limit of {found.request_limit_delta} cannot be")
    least = srp.LoginRequest.LENGTH_BYTES
    if found.max_it_bytes < least or not least // 2 <= found.max_ti_bytes <= MOST_MESSAGE_BYTES:
        raise MessageError(f"messages of {found.max_it_bytes} and {found.max_ti_bytes} bytes cannot be")
    return found


def refusal(private_data: bytes) -> str:
    """Why a login was rejected, from the private data of REJ."""
    try:
        found = srp.LoginReject.decode(private_data)
    except WireError:
        return ""
    if found.type != srp.LOGIN_REJ:
        return ""
    return srp.REJ_REASONS.get(found.reason, f"reason {found.reason:#x}")


class InitiatorSession:
    """The channel that ``response`` has granted; ``credit``: requests that may be sent now.

    One request is held back for task management, where the limit allows it.
    """

    def __init__(self, response: srp.LoginResponse) -> None:
        self.credit = response.request_limit_delta
        self.message_bytes = response.max_it_bytes
        self._reserve = 1 if self.credit > 1 else 0
        self._next_tag = 1
        self._under_way: set[int] = set()

    @property
    def may_send(self) -> bool:
        """Whether a command may be sent now."""
        return self.credit > self._reserve

    def command(
        self,
        lun: bytes,
        cdb: bytes,
        direction: int = NOTHING,
        ranges: Sequence[Range] = (),
        table: Range | None = None,
        attribute: int = srp.SIMPLE,
    ) -> tuple[int, bytes]:
        """Tag and message of a command whose data are in ``ranges``, whose table stands at ``table`` (needed
        for more than one); of a table that is too long for a message the target reads the rest.
        """
        tag = self._next_tag
        self._next_tag += 1
        self.credit -= 1
        self._under_way.add(tag)
        described, form, count = b"", NO_DATA, 0
        if direction != NOTHING and len(ranges) == 1:
            described, form = ranges[0].encode(), DIRECT
        elif direction != NOTHING:
            assert table is not None
            room = self.message_bytes - srp.Command.LENGTH_BYTES - descriptors.TABLE_HEAD_BYTES
            count = min(len(ranges), max(room, 0) // descriptors.RANGE_BYTES)
            length = sum(each.length for each in ranges)
            described = descriptors.encode_indirect(table, length, ranges[:count])
            form = INDIRECT
        out = direction == TO_TARGET
        message = srp.Command(
            out_format=form if out else NO_DATA,
            in_format=NO_DATA if out else form,
            out_count=count if out else 0,
            in_count=0 if out else count,
            tag=tag,
            lun=lun,
            task_attribute=attribute,
            cdb=cdb.ljust(16, b"\0"),
        )
        return tag, message.encode() + described

    def receive(self, message: bytes) -> tuple[Finished | None, bytes]:
        """What a message says: that a command has ended, and what must be sent back (or nothing).
        MessageError: the channel is over, and why.
        """
        kind = message[0] if message else -1
        try:
            if kind == srp.RSP:
                return self._response(message), b""
            if kind in (srp.CRED_REQ, srp.AER_REQ):
                asked = srp.TargetRequest.decode(message)
                self._grant(asked.request_limit_delta)
                answer = srp.CRED_RSP if kind == srp.CRED_REQ else srp.AER_RSP
                return None, srp.Short(type=answer, tag=asked.tag).encode()
            if kind == srp.T_LOGOUT:
                reason = srp.TargetLogout.decode(message).reason
                raise MessageError(f"the target has ended the channel, reason {reason}")
        except WireError as error:
            raise MessageError(str(error)) from None
        raise MessageError(f"there is no message of type {kind:#x} from a target")

    def _grant(self, delta: int) -> None:
        self.credit += srp.signed(delta)
        if not -MOST_CREDIT <= self.credit <= MOST_CREDIT:
            raise MessageError(f"a request limit of {self.credit} cannot be")

    def _response(self, message: bytes) -> Finished:
        found = srp.Response.decode(message)
        if found.tag not in self._under_way:
            raise MessageError(f"there is no command {found.tag}")
        lengths = (
            found.response_bytes if found.response_valid else 0,
            found.sense_bytes if found.sense_valid else 0,
        )
        start = srp.Response.LENGTH_BYTES
        if start + sum(lengths) > len(message):
            raise MessageError("a response is cut short")
        self._under_way.discard(found.tag)
        self._grant(found.request_limit_delta)
        if lengths[0] >= srp.RESPONSE_DATA_BYTES and message[start + 3] != srp.TASK_DONE:
            raise MessageError(f"the target refuses a request, response code {message[start + 3]}")
        sense = Sense.decode(message[start + lengths[0] :][: lengths[1]]) if lengths[1] else None
        under = (found.in_residual if found.in_under else 0) + (found.out_residual if found.out_under else 0)
        return Finished(found.tag, found.status, sense, under, bool(found.in_over or found.out_over))
