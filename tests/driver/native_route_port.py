"""A port of a native link whose manager answers as a test says."""

from types import SimpleNamespace

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.management.administration_attributes import (
    PathRecord,
)
from softhca.management.mad import Mad

OWN, PEER = (bytes.fromhex("fe80000000000000") + bytes(7) + bytes([n]) for n in (1, 2))
PKEYS = (0xFFFF, 0, 0x0012)


class Device:
    """A native port whose manager answers with ``answer``, or as ``status`` says."""

    def __init__(self, status=0, lid=3, sm_lid=9, error=0, **answer):
        self.status, self.error = status, error
        self.answer = answer.pop("record", None) or PathRecord(
            **{"dlid": 7, "sl": 5, "mtu": 4, "pkey": 0x8012, **answer}
        )
        self.port = {"lid": lid, "sm_lid": sm_lid, "sm_sl": 2, "pkey_tbl_len": len(PKEYS)}
        self.asked, self.registered = [], 0

    def query_port(self, port):
        return self.port

    def query_pkey(self, port, index):
        return PKEYS[index]

    def register_agent(self, port, management_class, version, methods, entries):
        assert (port, management_class, version, methods) == (1, 3, 2, ())
        self.registered += 1
        return SimpleNamespace(ask=self.ask, unregister=self.unregister)

    def unregister(self):
        self.registered -= 1

    def ask(self, mad, to, timeout_ms, retries):
        self.asked.append((Mad.decode(mad), to, timeout_ms, retries))
        if self.error:
            raise DriverError(self.error, "told")
        return Mad.decode(mad).response(self.status, self.answer).encode()


def place(device):
    return LocalPort(device, 1, 0, OWN, 5, 16, 16, True)
