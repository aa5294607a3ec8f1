"""Numbers of the providers' enumerations: those of rdma-core's mlx5dv.h, efadv.h and mlx5_api.h."""

import json
from enum import Enum
from pathlib import Path

import pytest

from softhca.verbs.providers.efa import efa_enums
from softhca.verbs.providers.mlx5 import mlx5_enums

TABLE = json.loads((Path(__file__).parents[1] / "data" / "pyverbs" / "provider_numbers.json").read_text())


@pytest.mark.parametrize("module", [mlx5_enums, efa_enums], ids=["mlx5", "efa"])
def test_each_number_is_the_headers(module):
    found = {}
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Enum):
            found.update({each: int(one.value) for each, one in value.__members__.items()})
        elif isinstance(value, int) and name.strip("_").isupper():
            found[name] = int(value)
    assert found == TABLE[module.__name__.rpartition(".")[2]]
