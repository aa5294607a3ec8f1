"""What the receive FIFO knows of packets: reasons to refuse one, and the opcodes, as data for a ROM.

The numbers and rows are those of the software adapter's wire format, to which tests hold them.
"""

from __future__ import annotations

TRUNCATED, LENGTH, OPCODE, VERSION, PAD, ICRC, VCRC, LINK_HEADER = range(1, 9)
RESOURCES, RAW = 21, 22
REASON_BITS = 8
REASON_NAMES = {
    TRUNCATED: "shorter than its headers",
    LENGTH: "length",
    OPCODE: "opcode",
    VERSION: "transport header version",
    PAD: "pad count",
    ICRC: "ICRC",
    VCRC: "VCRC",
    LINK_HEADER: "link or global header",
    RESOURCES: "no room",
    RAW: "raw packet",
}

EXTENSION_SHIFT = 2
PAYLOAD_BIT = 1
KNOWN_BIT = 0
ROW_BITS = 6

# words of the extension headers that come with the low five bits of an opcode, in every service
_EXTENSION_WORDS = {
    0x03: 1, 0x05: 1, 0x06: 4, 0x09: 1, 0x0A: 4, 0x0B: 5, 0x0C: 4, 0x0D: 1, 0x0F: 1, 0x10: 1, 0x11: 1,
    0x12: 3, 0x13: 7, 0x14: 7, 0x16: 1, 0x17: 1, 0x1C: 5, 0x1D: 4,
}  # fmt: skip
_WITHOUT_PAYLOAD = (0x0C, 0x11, 0x12, 0x13, 0x14, 0x15, 0x1C)
_RESPONSES = (0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12)
_RELIABLE = (*range(0x15), 0x16, 0x17)
# service's top three bits: its rows, words in front of its requests' extension headers and its responses'
_SERVICES = {
    0: ((*_RELIABLE, 0x1C, 0x1D), 0, 0),  # RC, with FLUSH and ATOMIC WRITE
    1: (range(0x0C), 0, 0),  # UC
    2: (range(0x16), 3, 1),  # RD: RDETH, DETH
    3: ((0x04, 0x05), 2, 2),  # UD: DETH
    5: (_RELIABLE, 1, 0),  # XRC: XRCETH
}
_CONGESTION = 0x81


def opcode_rows() -> list[int]:
    """256 rows: bit 0 there is such an opcode, bit 1 payload may follow, bits 2–5 words of extension
    headers."""
    rows = [0] * 256
    for service, (codes, request_words, response_words) in _SERVICES.items():
        for low in codes:
            front = response_words if low in _RESPONSES else request_words
            words = front + _EXTENSION_WORDS.get(low, 0)
            payload = low not in _WITHOUT_PAYLOAD
            rows[service << 5 | low] = 1 << KNOWN_BIT | payload << PAYLOAD_BIT | words << EXTENSION_SHIFT
    rows[_CONGESTION] = 1 << KNOWN_BIT | 1 << PAYLOAD_BIT
    return rows
