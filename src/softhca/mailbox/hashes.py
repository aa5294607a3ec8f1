"""The hashes that two ends can agree on, and what they become for one ring.

xxh3-128 (64-bit seed) is fast and detects accidents; BLAKE3 and BLAKE2b with a key also detect forgeries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from softhca.mailbox.errors import TermsError


class Digest(NamedTuple):
    """The hash of one ring: ``function(data, argument)`` is the hash of a bytes-like object."""

    function: Callable[[Any, Any], bytes]
    argument: Any

    def __call__(self, data: Any) -> bytes:
        return self.function(data, self.argument)


NONCE_BYTES = 8
MIN_KEY_BYTES, MAX_KEY_BYTES = 16, 64
_PERSON = b"softhca mailbox"


@dataclass(frozen=True)
class Algorithm:
    """``number`` is on the wire; ``keyed`` ones need the application's key."""

    name: str
    number: int
    digest_bytes: int
    keyed: bool
    make: Callable[[bytes, bytes], Digest]

    def for_ring(self, nonce: bytes, key: bytes = b"") -> Digest:
        """The hash of the ring with that ``nonce`` (8 bytes), under ``key``.

        TermsError when the key does not fit, ImportError when the hash's package is missing.
        """
        if len(nonce) != NONCE_BYTES:
            raise TermsError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        if self.keyed and not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
            raise TermsError(f"{self.name} needs a key of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes")
        if key and not self.keyed:
            raise TermsError(f"{self.name} takes no key")
        return self.make(nonce, key)


def _xxh3(nonce: bytes, key: bytes) -> Digest:
    import xxhash

    return Digest(xxhash.xxh3_128_digest, int.from_bytes(nonce, "little"))


def _ring_key(number: int, nonce: bytes, key: bytes) -> bytes:
    """A key of 32 bytes for one ring, so that a block of another one does not verify."""
    return hashlib.blake2b(bytes([number]) + nonce, key=key, digest_size=32, person=_PERSON).digest()


def _blake3(nonce: bytes, key: bytes) -> Digest:
    try:
        from blake3 import blake3
    except ImportError:
        raise ImportError("the hash blake3 needs a package: pip install 'softhca[blake3]'") from None

    def keyed(data: Any, ring_key: bytes) -> bytes:
        return bytes(blake3(data, key=ring_key).digest())

    return Digest(keyed, _ring_key(2, nonce, key))


def _blake2b(nonce: bytes, key: bytes) -> Digest:
    return Digest(_continued, hashlib.blake2b(key=_ring_key(3, nonce, key), digest_size=32))


def _continued(data: Any, begun: Any) -> bytes:
    state = begun.copy()
    state.update(data)
    return bytes(state.digest())


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("xxh3-128", 1, 16, False, _xxh3),
        Algorithm("blake3", 2, 32, True, _blake3),
        Algorithm("blake2b", 3, 32, True, _blake2b),
    )
}


def find_algorithm(name: str) -> Algorithm:
    """The hash of that name; TermsError when there is none."""
    if name not in ALGORITHMS:
        raise TermsError(f"there is no hash {name!r}; there are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]
