"""Enumerations: the names and values of libibverbs and librdmacm."""

import importlib
import json
from enum import Enum, IntFlag
from pathlib import Path

import pytest

from softhca.verbs import cm_enums, enums, libibverbs_enums, librdmacm_enums

TABLE = json.loads((Path(__file__).parents[1] / "data" / "pyverbs" / "enums.json").read_text())

# values of <infiniband/verbs.h>, taken from rdma-core's headers
VALUES = {
    "IBV_ACCESS_LOCAL_WRITE": 1,
    "IBV_ACCESS_REMOTE_WRITE": 2,
    "IBV_ACCESS_REMOTE_READ": 4,
    "IBV_ACCESS_REMOTE_ATOMIC": 8,
    "IBV_ACCESS_MW_BIND": 16,
    "IBV_ACCESS_ZERO_BASED": 32,
    "IBV_ACCESS_ON_DEMAND": 64,
    "IBV_ACCESS_HUGETLB": 128,
    "IBV_ACCESS_RELAXED_ORDERING": 1 << 20,
    "IBV_QPS_RESET": 0,
    "IBV_QPS_INIT": 1,
    "IBV_QPS_RTR": 2,
    "IBV_QPS_RTS": 3,
    "IBV_QPS_SQD": 4,
    "IBV_QPS_SQE": 5,
    "IBV_QPS_ERR": 6,
    "IBV_QPT_RC": 2,
    "IBV_QPT_UC": 3,
    "IBV_QPT_UD": 4,
    "IBV_QPT_RAW_PACKET": 8,
    "IBV_QPT_XRC_SEND": 9,
    "IBV_QPT_XRC_RECV": 10,
    "IBV_QPT_DRIVER": 255,
    "IBV_WR_RDMA_WRITE": 0,
    "IBV_WR_RDMA_WRITE_WITH_IMM": 1,
    "IBV_WR_SEND": 2,
    "IBV_WR_SEND_WITH_IMM": 3,
    "IBV_WR_RDMA_READ": 4,
    "IBV_WR_ATOMIC_CMP_AND_SWP": 5,
    "IBV_WR_ATOMIC_FETCH_AND_ADD": 6,
    "IBV_WR_LOCAL_INV": 7,
    "IBV_WR_BIND_MW": 8,
    "IBV_WR_SEND_WITH_INV": 9,
    "IBV_WR_TSO": 10,
    "IBV_WR_FLUSH": 14,
    "IBV_WR_ATOMIC_WRITE": 15,
    "IBV_SEND_FENCE": 1,
    "IBV_SEND_SIGNALED": 2,
    "IBV_SEND_SOLICITED": 4,
    "IBV_SEND_INLINE": 8,
    "IBV_WC_SUCCESS": 0,
    "IBV_WC_LOC_LEN_ERR": 1,
    "IBV_WC_LOC_PROT_ERR": 4,
    "IBV_WC_WR_FLUSH_ERR": 5,
    "IBV_WC_REM_INV_REQ_ERR": 9,
    "IBV_WC_REM_ACCESS_ERR": 10,
    "IBV_WC_REM_OP_ERR": 11,
    "IBV_WC_RETRY_EXC_ERR": 12,
    "IBV_WC_RNR_RETRY_EXC_ERR": 13,
    "IBV_WC_GENERAL_ERR": 21,
    "IBV_WC_SEND": 0,
    "IBV_WC_RDMA_WRITE": 1,
    "IBV_WC_RDMA_READ": 2,
    "IBV_WC_COMP_SWAP": 3,
    "IBV_WC_FETCH_ADD": 4,
    "IBV_WC_RECV": 128,
    "IBV_WC_RECV_RDMA_WITH_IMM": 129,
    "IBV_WC_GRH": 1,
    "IBV_WC_WITH_IMM": 2,
    "IBV_WC_WITH_INV": 8,
    "IBV_WC_STANDARD_FLAGS": 0x7F,
    "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP": 1 << 7,
    "IBV_QP_STATE": 1,
    "IBV_QP_PKEY_INDEX": 16,
    "IBV_QP_PORT": 32,
    "IBV_QP_QKEY": 64,
    "IBV_QP_AV": 128,
    "IBV_QP_PATH_MTU": 256,
    "IBV_QP_TIMEOUT": 512,
    "IBV_QP_RQ_PSN": 4096,
    "IBV_QP_SQ_PSN": 1 << 16,
    "IBV_QP_CAP": 1 << 19,
    "IBV_QP_DEST_QPN": 1 << 20,
    "IBV_QP_RATE_LIMIT": 1 << 25,
    "IBV_EVENT_CQ_ERR": 0,
    "IBV_EVENT_QP_FATAL": 1,
    "IBV_EVENT_COMM_EST": 4,
    "IBV_EVENT_SQ_DRAINED": 5,
    "IBV_EVENT_DEVICE_FATAL": 8,
    "IBV_EVENT_SRQ_LIMIT_REACHED": 15,
    "IBV_EVENT_QP_LAST_WQE_REACHED": 16,
    "IBV_MTU_256": 1,
    "IBV_MTU_4096": 5,
    "IBV_PORT_ACTIVE": 4,
    "IBV_NODE_CA": 1,
    "IBV_NODE_UNKNOWN": -1,
    "IBV_LINK_LAYER_ETHERNET": 2,
    "IBV_GID_TYPE_ROCE_V2": 2,
    "IBV_GID_TYPE_SYSFS_ROCE_V2": 1,
    "IBV_DEVICE_SRQ_RESIZE": 1 << 13,
    "IBV_DEVICE_MANAGED_FLOW_STEERING": 1 << 29,
    "IBV_REREG_MR_CHANGE_ACCESS": 4,
    "IBV_FORK_UNNEEDED": 2,
    "IBV_QP_CREATE_SOURCE_QPN": 1 << 10,
    "IBV_QP_EX_WITH_SEND": 4,
    "IBV_SRQ_MAX_WR": 1,
    "IBV_SRQ_LIMIT": 2,
    "IBV_FLOW_SPEC_ACTION_COUNT": 0x1003,
    "IBV_TMH_EAGER": 3,
    "_IBV_ALLOCATOR_USE_DEFAULT": 2**64 - 1,
    "_IBV_DEVICE_PCI_WRITE_END_PADDING": 1 << 36,
}


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_flat_names_have_libibverbs_values_in_both_modules(name: str, value: int) -> None:
    assert getattr(libibverbs_enums, name) == value
    assert getattr(enums, name) == value


@pytest.mark.parametrize("module", TABLE["44"])
def test_all_that_the_compiled_modules_have_is_there_with_its_value(module: str) -> None:
    ours = importlib.import_module(f"softhca.verbs.{module}")
    told = TABLE["44"][module]
    assert len(told["flat"]) >= 30
    assert {name: int(getattr(ours, name)) for name in told["flat"]} == told["flat"]
    for kind, members in told["classes"].items():
        assert {name: int(getattr(getattr(ours, kind), name)) for name in members} == members


@pytest.mark.parametrize("module", TABLE["65"]["names"])
def test_all_that_programs_of_the_newest_release_use_is_there(module: str) -> None:
    ours = importlib.import_module(f"softhca.verbs.{module}")
    assert [name for name in TABLE["65"]["names"][module] if not hasattr(ours, name)] == []
    for kind, members in TABLE["65"]["members"][module].items():
        assert [name for name in members if not hasattr(getattr(ours, kind), name)] == []


@pytest.mark.parametrize("module", TABLE["65"]["values"])
def test_classes_have_the_members_and_values_of_the_compiled_modules_of_the_newest_release(
    module: str,
) -> None:
    """Of Debian's python3-pyverbs 65.0, read where its extension modules run."""
    ours = importlib.import_module(f"softhca.verbs.{module}")
    for kind, members in TABLE["65"]["values"][module].items():
        assert {name: int(each) for name, each in getattr(ours, kind).__members__.items()} == members


def test_every_member_of_every_class_is_flat_too() -> None:
    classes = [each for name, each in vars(libibverbs_enums).items() if name.startswith("ibv_")]
    assert all(issubclass(each, Enum) for each in classes)
    assert len(classes) == 64
    for each in classes:
        for name, member in each.__members__.items():
            assert getattr(libibverbs_enums, name) is member
            assert getattr(enums, name) is member
    assert sum(len(each.__members__) for each in classes) == 392


def test_masks_can_be_combined_and_listed_bit_by_bit() -> None:
    access = libibverbs_enums.ibv_access_flags
    assert issubclass(access, IntFlag)
    assert [int(each) for each in access] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 20]
    assert access.IBV_ACCESS_LOCAL_WRITE | access.IBV_ACCESS_REMOTE_READ == 5
    optional = libibverbs_enums.IBV_ACCESS_OPTIONAL_RANGE
    assert optional == sum(1 << bit for bit in range(20, 30))


def test_connection_manager_names_stand_in_both_modules() -> None:
    for module in (librdmacm_enums, cm_enums):
        assert module.RDMA_CM_EVENT_ESTABLISHED == 9
        assert module.RDMA_PS_TCP == 0x106
        assert module.RAI_PASSIVE == 1
        assert module.RDMA_OPTION_ID_ACK_TIMEOUT == 3
        assert module.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER == 1


def test_an_unknown_name_is_an_attribute_error() -> None:
    for name in ("enums", "libibverbs_enums", "librdmacm_enums", "cm_enums"):
        with pytest.raises(AttributeError):
            importlib.import_module(f"softhca.verbs.{name}").IBV_NO_SUCH_NAME  # noqa: B018
