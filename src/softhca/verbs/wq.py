"""Work queues and receive-side scaling: the attributes are there, the device has neither."""

from collections.abc import Sequence
from typing import Any

from softhca.verbs.absent import AbsentObject, absent_method, absent_property
from softhca.verbs.base import PyverbsObject
from softhca.verbs.extension_enums import ibv_wq_type


class WQInitAttr(PyverbsObject):
    """What a work queue is made of."""

    __slots__ = ("comp_mask", "cq", "create_flags", "max_sge", "max_wr", "pd", "wq_context", "wq_type")

    def __init__(
        self,
        wq_context: object = None,
        wq_pd: Any = None,
        wq_cq: Any = None,
        wq_type: int = int(ibv_wq_type.IBV_WQT_RQ),
        max_wr: int = 100,
        max_sge: int = 1,
        comp_mask: int = 0,
        create_flags: int = 0,
    ) -> None:
        self.wq_context = wq_context
        self.pd = wq_pd
        self.cq = wq_cq
        self.wq_type = int(wq_type)
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.comp_mask = int(comp_mask)
        self.create_flags = int(create_flags)


class WQAttr(PyverbsObject):
    """What of a work queue is changed; ``attr_mask`` (``ibv_wq_attr_mask``) says which fields count."""

    __slots__ = ("attr_mask", "curr_wq_state", "flags", "flags_mask", "wq_state")

    def __init__(
        self,
        attr_mask: int = 0,
        wq_state: int = 0,
        curr_wq_state: int = 0,
        flags: int = 0,
        flags_mask: int = 0,
    ) -> None:
        self.attr_mask = int(attr_mask)
        self.wq_state = int(wq_state)
        self.curr_wq_state = int(curr_wq_state)
        self.flags = int(flags)
        self.flags_mask = int(flags_mask)


class WQ(AbsentObject):
    """A receive queue without a queue pair; refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    def __init__(self, context: Any, attr: WQInitAttr) -> None:
        super().__init__(context, attr)

    modify = post_recv = add_ref = absent_method
    wqn = absent_property


class RwqIndTableInitAttr(PyverbsObject):
    """What a table of receive queues is made of: the logarithm of its size, the queues."""

    __slots__ = ("comp_mask", "log_ind_tbl_size", "wqs_list")

    def __init__(
        self, log_ind_tbl_size: int = 5, wqs_list: Sequence[WQ] | None = None, comp_mask: int = 0
    ) -> None:
        self.log_ind_tbl_size = log_ind_tbl_size
        self.wqs_list = list(wqs_list or ())
        self.comp_mask = int(comp_mask)


class RwqIndTable(AbsentObject):
    """A table of receive queues; refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    def __init__(self, context: Any, attr: RwqIndTableInitAttr) -> None:
        super().__init__(context, attr)

    add_ref = absent_method
    wqs = absent_property


class RxHashConf(PyverbsObject):
    """How a receive hash is made: function, key, and which fields it takes."""

    __slots__ = ("rx_hash_fields_mask", "rx_hash_function", "rx_hash_key", "rx_hash_key_len")

    def __init__(
        self,
        rx_hash_function: int = 0,
        rx_hash_key_len: int = 0,
        rx_hash_key: Sequence[int] | bytes | None = None,
        rx_hash_fields_mask: int = 0,
    ) -> None:
        self.rx_hash_function = int(rx_hash_function)
        self.rx_hash_key_len = rx_hash_key_len
        self.rx_hash_key = bytes(rx_hash_key or ())
        self.rx_hash_fields_mask = int(rx_hash_fields_mask)
