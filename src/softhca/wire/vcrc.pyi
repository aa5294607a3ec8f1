from softhca.wire.layout import Octets

LENGTH_BYTES: int

def compute(data: Octets, offset: int = 0, length: int = -1) -> int: ...
