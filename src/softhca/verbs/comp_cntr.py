"""Completion counters: the attributes are there, the device has none."""

from softhca.verbs.absent import AbsentObject, absent_method
from softhca.verbs.base import PyverbsObject


class CompCntrInitAttr(PyverbsObject):
    """What a counter is made of."""

    __slots__ = ("cntr_type", "comp_mask", "flags")

    def __init__(self, comp_mask: int = 0, cntr_type: int = 0, flags: int = 0) -> None:
        self.comp_mask = int(comp_mask)
        self.cntr_type = int(cntr_type)
        self.flags = int(flags)


class CompCntr(AbsentObject):
    """A counter of completions; refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    set = set_err = inc = inc_err = read = read_err = absent_method
