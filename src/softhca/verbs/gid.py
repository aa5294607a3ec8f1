"""Global identifiers."""

from softhca.verbs.pyverbs_error import PyverbsUserError
from softhca.verbs.structures import Structure
from softhca.verbs.utils import GID_BYTES, gid_from_bytes, gid_to_bytes


class GID(Structure):
    """A global identifier, sixteen bytes; written as eight words of four hexadecimal digits."""

    __slots__ = ("_raw",)

    def __init__(self, val: str | None = None) -> None:
        self._raw = bytes(GID_BYTES) if val is None else gid_to_bytes(val)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "GID":
        """The GID of sixteen bytes in network order."""
        if len(raw) != GID_BYTES:
            raise PyverbsUserError(f"A GID has {GID_BYTES} bytes, not {len(raw)}")
        gid = cls()
        gid._raw = bytes(raw)
        return gid

    @property
    def raw(self) -> bytes:
        """The sixteen bytes in network order."""
        return self._raw

    @property
    def gid(self) -> str:
        """The GID in eight words."""
        return str(self)

    @gid.setter
    def gid(self, val: str) -> None:
        self._raw = gid_to_bytes(val)

    def __str__(self) -> str:
        return gid_from_bytes(self._raw)
