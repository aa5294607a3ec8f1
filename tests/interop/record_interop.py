"""``python tests/interop/record_interop.py``: writes a small capture of each pair into tests/data/interop."""

from __future__ import annotations

from pathlib import Path

import interop_cells  # noqa: F401    (registers the cells)
from interop_capture import Capture
from interop_image import images
from interop_matrix import CELLS, DIRECTIONS, SETTINGS, attempt
from interop_network import GUEST_HOST
from interop_world import World

FOLDER = Path(__file__).parents[1] / "data" / "interop"
CELL = "RC RDMA WRITE with immediate"
RECORDED = {SETTINGS[0]: "v4", SETTINGS[-1]: "v6"}
NAMES = {DIRECTIONS[0]: "ours_asks", DIRECTIONS[1]: "kernel_asks"}


def main() -> None:
    found = images(print)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for series, kernel in found.kernels.items():
        with World(found, kernel) as world:
            for setting, family in RECORDED.items():
                for direction, name in NAMES.items():
                    path = FOLDER / f"linux{series}_{family}_{name}.pcap"
                    with Capture(world.network.prefix, f"guest{GUEST_HOST}", path):
                        outcome = attempt(CELLS[CELL], world.sides.case(setting, direction), direction)
                    assert not outcome.reason, outcome.reason
                    print(path)


if __name__ == "__main__":
    main()
