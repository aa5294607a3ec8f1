"""The host's half of an end-to-end context of reliable datagrams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.driver.errors import refusal
from softhca.queues import control_fields as control
from softhca.queues import qp_attributes

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver


class EeHandle:
    """An EE context, ``number``, of the domain ``rdd``.  Any thread may call any method."""

    __slots__ = ("_session", "number", "rdd")

    def __init__(self, driver: DeviceDriver, rdd: int) -> None:
        self._session = driver.session
        self.rdd = rdd
        self.number: int = driver.session.call(control.CREATE_EE, rdd=rdd)["ee_num"]

    def modify(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes by a queue pair's names, all or none; ``dest_qp_num`` is the number of the peer's EE
        context.  EINVAL when refused.
        """
        try:
            mask, fields = qp_attributes.pack(attributes)
        except OSError as error:
            raise refusal(error) from None
        self._session.call(control.MODIFY_EE, ee_num=self.number, attr_mask=mask, **fields)

    def query(self) -> dict[str, Any]:
        """All attributes, by a queue pair's names."""
        return qp_attributes.unflatten(self._session.call(control.QUERY_EE, ee_num=self.number))

    def destroy(self) -> None:
        """Destroy it; work requests that wait on it end with "invalid EE context state"."""
        self._session.call(control.DESTROY_EE, ee_num=self.number)
