"""Every name of pyverbs is there: modules, functions, classes, members, keywords, as rdma-core 44 and 65 have
them.

The names stand in ``tests/data/pyverbs/names.json``, taken down from the two releases.
"""

import ast
import importlib
import inspect
import json
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from softhca.verbs.device_attributes import Record

FACTS = json.loads((Path(__file__).parents[1] / "data" / "pyverbs" / "names.json").read_text())
RELEASES = ("44", "65")
MODULES = sorted({(release, name) for release in RELEASES for name in FACTS[release]["classes"]})
IMPORTS = sorted({(release, name) for release in RELEASES for name in FACTS[release]["imports"]})
CALLS = sorted({(release, name) for release in RELEASES for name in FACTS[release]["keywords"]})
PROVIDERS = {
    "providers.mlx5.mlx5dv": (
        "Mlx5Context Mlx5DVContextAttr Mlx5DVQPInitAttr Mlx5QP Mlx5DVDCInitAttr Mlx5DCIStreamInitAttr "
        "Mlx5DevxObj Mlx5UMEM Mlx5UAR WqeDataSeg WqeCtrlSeg Wqe Mlx5Cqe64 Mlx5DVCQInitAttr Mlx5CQ"
    ),
    "providers.mlx5.mlx5dv_objects": "Mlx5DvObj",
    "providers.mlx5.mlx5_enums": (
        "mlx5dv_qp_init_attr_mask mlx5dv_dc_type mlx5dv_context_attr_flags mlx5dv_obj_type "
        "mlx5dv_context_attr_comp_mask MLX5_SEND_WQE_BB MLX5_SEND_WQE_SHIFT MLX5_WQE_CTRL_CQ_UPDATE "
        "MLX5_OPCODE_SEND_IMM MLX5_SND_DBR MLX5_RCV_DBR MLX5_CQE_INVALID MLX5_CQE_RESP_ERR "
        "MLX5_CQE_REQ_ERR MLX5_CQE_REQ MLX5_CQE_RESP_SEND_IMM _MLX5DV_UAR_ALLOC_TYPE_NC"
    ),
    "providers.efa.efadv": "EfaCQ",
    "providers.efa.efa_enums": "EFADV_QP_DRIVER_TYPE_SRD",
}


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"softhca.verbs.{name}")


def names_of(kind: type) -> set[str]:
    """What an object of ``kind`` has: of the class, and what its methods set on ``self``."""
    found = set(dir(kind))
    for each in kind.__mro__:
        found |= set(vars(each).get("__annotations__", ()))
        if each.__module__.startswith("softhca.verbs"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
            found |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            }
    if issubclass(kind, Record):
        found |= set(dir(kind()))
    return found


@pytest.mark.parametrize(("release", "name"), MODULES)
def test_a_module_has_all_functions_classes_and_members(release: str, name: str) -> None:
    module = module_of(name)
    for kind, members in FACTS[release]["classes"][name].items():
        there = set(dir(module)) if not kind else names_of(getattr(module, kind))
        assert not set(members) - there, kind or "functions"


@pytest.mark.parametrize(("release", "name"), IMPORTS)
def test_what_programs_import_is_there(release: str, name: str) -> None:
    module = module_of(name.removeprefix("pyverbs."))
    assert not [each for each in FACTS[release]["imports"][name] if not hasattr(module, each)]


@pytest.mark.parametrize(("release", "call"), CALLS)
def test_a_call_takes_the_keywords_that_programs_give(release: str, call: str) -> None:
    name, _, kind = call.rpartition(".")
    taken = inspect.signature(getattr(module_of(name), kind)).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return
    assert not set(FACTS[release]["keywords"][call]) - set(taken)


@pytest.mark.parametrize("name", PROVIDERS)
def test_what_programs_import_of_other_makers_is_there(name: str) -> None:
    module = module_of(name)
    assert not [each for each in PROVIDERS[name].split() if not hasattr(module, each)]
