"""Steering of packets to raw queue pairs: the attributes are there, the device steers nothing."""

from typing import Any

from softhca.verbs.absent import AbsentObject
from softhca.verbs.base import PyverbsObject, read_only
from softhca.verbs.extension_enums import ibv_flow_attr_type
from softhca.verbs.pyverbs_error import PyverbsUserError


class FlowAttr(PyverbsObject):
    """A rule: its type (``ibv_flow_attr_type``), priority, port, and up to ``num_of_specs`` of `spec`."""

    __slots__ = ("_specs", "flags", "num_of_specs", "port", "priority", "type")
    specs: list[Any] = read_only("_specs", "The headers, as specifications.")

    def __init__(
        self,
        num_of_specs: int = 0,
        flow_type: int = int(ibv_flow_attr_type.IBV_FLOW_ATTR_NORMAL),
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


class Flow(AbsentObject):
    """A rule in force for a queue pair; refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    def __init__(self, qp: Any, flow_attr: FlowAttr) -> None:
        if len(flow_attr.specs) > flow_attr.num_of_specs:
            raise PyverbsUserError(
                f"The rule has {len(flow_attr.specs)} specifications, not {flow_attr.num_of_specs} or fewer"
            )
        super().__init__(qp, flow_attr)


class FlowAction(PyverbsObject):
    """What a rule does with a packet."""

    __slots__ = ()
