"""The stored corpora: the inputs of a target in one file, ``corpus/TARGET.packed``.

``python tests/fuzz/fuzz_corpus.py unpack TARGET FOLDER`` writes them as files; ``pack TARGET FOLDER`` stores
the files of a folder; ``add TARGET FILE…`` stores more.

Format: the line ``softhca fuzz corpus 1``, then each input behind its length in two bytes, big-endian.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
MAGIC = b"softhca fuzz corpus 1\n"
MAX_INPUT_BYTES = 2048


def name_of(data: bytes) -> str:
    """An input's name as a file; inputs stand in the order of their names."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]


def packed(inputs: Iterable[bytes]) -> bytes:
    """The file of these inputs, each once.  ValueError for one that is too long."""
    parts = [MAGIC]
    for data in sorted(set(inputs), key=name_of):
        if len(data) > MAX_INPUT_BYTES:
            raise ValueError(f"an input of {len(data)} bytes: at most {MAX_INPUT_BYTES}")
        parts += [len(data).to_bytes(2, "big"), data]
    return b"".join(parts)


def unpacked(file: bytes) -> list[bytes]:
    """The inputs of such a file.  ValueError when it is none."""
    if not file.startswith(MAGIC):
        raise ValueError(f"no corpus: it begins with {file[: len(MAGIC)]!r}")
    found, at = [], len(MAGIC)
    while at < len(file):
        start = at + 2
        at = start + int.from_bytes(file[at:start], "big")
        if start > len(file) or at > len(file):
            raise ValueError(f"the corpus ends within an input, at {len(file)} bytes")
        found.append(file[start:at])
    return found


def stored(target: str, corpus: Path = CORPUS) -> list[bytes]:
    """A target's inputs; none where nothing is stored."""
    path = corpus / f"{target}.packed"
    return unpacked(path.read_bytes()) if path.exists() else []


def store(target: str, inputs: Iterable[bytes], corpus: Path = CORPUS) -> None:
    """Let these be a target's inputs."""
    (corpus / f"{target}.packed").write_bytes(packed(inputs))


def spread(target: str, folder: Path, corpus: Path = CORPUS) -> None:
    """Write a target's inputs into a folder, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in stored(target, corpus):
        (folder / name_of(data)).write_bytes(data)


def main(arguments: list[str]) -> int:
    """The program."""
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("what", choices=("unpack", "pack", "add"))
    parser.add_argument("target")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where the stored corpora are")
    options = parser.parse_args(arguments)
    target, paths, corpus = options.target, options.paths, options.corpus
    if options.what == "unpack":
        spread(target, paths[0], corpus)
    elif options.what == "pack":
        store(target, (path.read_bytes() for path in paths[0].iterdir()), corpus)
    else:
        store(target, [*stored(target, corpus), *(path.read_bytes() for path in paths)], corpus)
    print(f"{target}: {len(stored(target, corpus))} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
