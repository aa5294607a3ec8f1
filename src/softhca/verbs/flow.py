"""Steering of Ethernet frames to raw packet queue pairs: without a rule they receive nothing."""

import errno
from typing import Any

from softhca.verbs.base import PyverbsObject, Resource, creating, read_only, require
from softhca.verbs.extension_enums import ibv_flow_attr_type
from softhca.verbs.flow_rules import value_and_mask
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.queue_pair import QP

_NORMAL = int(ibv_flow_attr_type.IBV_FLOW_ATTR_NORMAL)


class FlowAttr(PyverbsObject):
    """A rule: its type (``ibv_flow_attr_type``), priority (0 goes first), port, and up to ``num_of_specs`` of
    `spec`.
    """

    __slots__ = ("_specs", "flags", "num_of_specs", "port", "priority", "type")
    specs: list[Any] = read_only("_specs", "The headers, as specifications.")

    def __init__(
        self,
        num_of_specs: int = 0,
        flow_type: int = _NORMAL,
        priority: int = 0,
        port: int = 1,
        flags: int = 0,
    ) -> None:
        self.num_of_specs = num_of_specs
        self.type = int(flow_type)
        self.priority = priority
        self.port = port
        self.flags = int(flags)
        self._specs: list[Any] = []


class Flow(Resource):
    """A rule in force for a raw packet queue pair of an Ethernet port, until it is closed.

    ``EOPNOTSUPP`` for headers that are not steered by and for flags, ``EINVAL`` for a queue pair of another
    type and for fields that do not fit, ``ENOSPC`` for too many different masks.
    """

    __slots__ = ("_number", "_qp")

    def __init__(self, qp: QP, flow_attr: FlowAttr) -> None:
        require(flow_attr, FlowAttr, "flow_attr")
        if len(flow_attr.specs) > flow_attr.num_of_specs:
            raise PyverbsUserError(
                f"The rule has {len(flow_attr.specs)} specifications, not {flow_attr.num_of_specs} or fewer"
            )
        require(qp, QP, "qp")
        if flow_attr.flags:
            raise PyverbsRDMAError("Failed to create Flow: no flag is supported", errno.EOPNOTSUPP)
        fields: dict[str, bytes] = {}
        if flow_attr.type == _NORMAL:
            fields["value"], fields["mask"] = value_and_mask(flow_attr.specs)
        elif flow_attr.specs:
            raise PyverbsRDMAError("Failed to create Flow: this type has no specifications", errno.EINVAL)
        self._driver = qp._driver
        with creating("Failed to create Flow"):
            self._number = self._driver.create_flow(
                qp.handle.number, flow_attr.port, flow_attr.type, flow_attr.priority, **fields
            )
            self._qp = qp
            self._opened(qp)

    def _destroy(self) -> None:
        self._driver.destroy_flow(self._number)


class FlowAction(PyverbsObject):
    """What a rule does with a packet."""

    __slots__ = ()
