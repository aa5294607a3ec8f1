"""The library as the loader and the compiler see it: version nodes, symbols, layouts."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from native_world import LIMIT_S, await_listener, needs

from softhca.native import build

HEADERS = Path("/usr/include/infiniband/verbs.h")
PRIVATE_OBJECT = "verbs_allow_disassociate_destroy"


def nodes():
    """(symbol, version node) of all that the version script says."""
    text = (build.SOURCES / "libibverbs.map").read_text()
    for node, body in re.findall(r"^(IBVERBS_[\w.]+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        for symbol in re.findall(r"^ {8}(\w+);", body, re.MULTILINE):
            yield symbol, node


def test_every_symbol_is_found_by_its_version_node(libibverbs):
    loaded = ctypes.CDLL(str(libibverbs))
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    found = list(nodes())
    assert len(found) > 150
    for symbol, node in found:
        assert find(loaded._handle, symbol.encode(), node.encode()), f"{symbol}@{node}"
        assert not find(loaded._handle, symbol.encode(), b"IBVERBS_0.9")


RELEASES = 33, 34, 57, 59, 64, 65
"""In whose private nodes vendors' libraries, and librdmacm, look for the same names."""


def test_every_private_name_is_in_the_node_of_each_release(libibverbs):
    loaded = ctypes.CDLL(str(libibverbs))
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    names = {(symbol, int(node.rpartition("_")[2])) for symbol, node in nodes() if "PRIVATE" in node}
    assert {node for _, node in names} == set(RELEASES)
    assert len(names) > 90
    for symbol, since in names:
        for release in RELEASES:
            wanted = release == since if symbol.startswith("verbs_register_driver") else True
            wanted = wanted and not (release < 57 and since == 65)
            found = find(loaded._handle, symbol.encode(), f"IBVERBS_PRIVATE_{release}".encode())
            assert bool(found) == wanted, f"{symbol} of {release}"
            assert not find(loaded._handle, f"{symbol}_in_{release}".encode(), b"")


def test_the_nodes_have_what_debians_library_has(libibverbs):
    tool, theirs = shutil.which("readelf"), Path("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
    if tool is None or not theirs.exists():
        pytest.skip("needs readelf and Debian's libibverbs1, to compare with")
    listed = subprocess.run(
        [tool, "-W", "--dyn-syms", str(theirs)], capture_output=True, text=True, check=True
    )
    wanted = set(re.findall(r" (\w+)@@(IBVERBS_[\w.]+)", listed.stdout))
    assert len(wanted) > 120
    assert wanted - set(nodes()) == set()


def test_it_needs_libc_and_no_python(libibverbs):
    from softhca.cli.native_programs import needed

    assert [name for name in needed(libibverbs) if not name.startswith(("libc.", "libpthread."))] == []


@pytest.mark.parametrize("program", ["ibv_devices", "ibv_rc_pingpong", "ib_write_bw", "rping", "ucx_info"])
def test_a_program_starts_on_it_without_devices(libibverbs, program):
    needs(program)
    argument = {"rping": "-h", "ucx_info": "-v"}.get(program, "-h")
    done = subprocess.run(
        [program, argument],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={"LD_PRELOAD": str(libibverbs), "PATH": "/usr/bin:/bin"},
    )
    assert "symbol" not in done.stderr
    assert "version" not in done.stderr
    assert done.returncode >= 0


FIELDS = {
    "ibv_device": "node_type transport_type name dev_name dev_path ibdev_path",
    "ibv_device_attr": "node_guid vendor_part_id device_cap_flags atomic_cap max_srq max_pkeys phys_port_cnt",
    "ibv_port_attr": "state gid_tbl_len max_msg_sz pkey_tbl_len lmc active_speed link_layer port_cap_flags2",
    "ibv_context": "device cmd_fd async_fd num_comp_vectors mutex abi_compat",
    "ibv_context_ops": "poll_cq req_notify_cq alloc_mw bind_mw dealloc_mw post_srq_recv post_send post_recv",
    "ibv_pd": "context handle", "ibv_mr": "pd addr length handle lkey rkey", "ibv_mw": "rkey handle type",
    "ibv_ah": "pd handle", "ibv_ah_attr": "grh dlid sl src_path_bits static_rate is_global port_num",
    "ibv_comp_channel": "fd refcnt",
    "ibv_srq": "srq_context pd handle mutex cond events_completed",
    "ibv_cq": "channel cq_context handle cqe mutex cond comp_events_completed",
    "ibv_cq_ex": "comp_mask status wr_id start_poll next_poll end_poll read_opcode read_imm_data"
                 " read_wc_flags read_sl read_completion_ts",
    "ibv_qp": "qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond events_completed",
    "ibv_qp_ex": "comp_mask wr_id wr_flags",
    "ibv_qp_attr": "qp_state qkey dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index sq_draining"
                   " max_rd_atomic min_rnr_timer port_num rnr_retry rate_limit",
    "ibv_qp_init_attr": "send_cq srq cap qp_type sq_sig_all",
    "ibv_qp_init_attr_ex": "comp_mask pd xrcd create_flags rwq_ind_tbl rx_hash_conf source_qpn"
                           " send_ops_flags",
    "ibv_wq": "wq_context pd cq wq_num handle state wq_type post_recv mutex cond events_completed",
    "ibv_wq_init_attr": "wq_context wq_type max_wr max_sge pd cq comp_mask create_flags",
    "ibv_wq_attr": "attr_mask wq_state curr_wq_state flags flags_mask",
    "ibv_rwq_ind_table": "context ind_tbl_handle ind_tbl_num comp_mask",
    "ibv_rwq_ind_table_init_attr": "log_ind_tbl_size ind_tbl comp_mask",
    "ibv_rx_hash_conf": "rx_hash_function rx_hash_key_len rx_hash_key rx_hash_fields_mask",
    "ibv_rss_caps": "supported_qpts max_rwq_indirection_tables max_rwq_indirection_table_size"
                    " rx_hash_fields_mask rx_hash_function",
    "ibv_send_wr": "next sg_list opcode"
                           " send_flags wr", "ibv_recv_wr": "next sg_list num_sge",
    "ibv_wc": "status opcode vendor_err byte_len qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits",
    "ibv_gid_entry": "gid_index port_num gid_type ndev_ifindex",
    "ibv_cq_init_attr_ex": "cqe channel comp_vector wc_flags comp_mask flags parent_domain",
    "ibv_alloc_dm_attr": "length log_align_req", "ibv_dm": "context memcpy_to_dm memcpy_from_dm handle",
    "ibv_srq_init_attr_ex": "attr comp_mask srq_type pd xrcd cq", "ibv_async_event": "element event_type",
    "ibv_device_attr_ex": "comp_mask completion_timestamp_mask hca_core_clock device_cap_flags_ex rss_caps"
                          " max_wq_type_rq raw_packet_caps xrc_odp_caps phys_port_cnt_ex",
}  # fmt: skip
"""Structures that grew at their ends since are compared by their fields, all others by their size too."""
GREW = {"ibv_port_attr", "ibv_qp_ex"}


def test_the_structures_are_where_debians_headers_have_them(tmp_path):
    compiler = build.compiler()
    if compiler is None or not HEADERS.exists():
        pytest.skip("needs a C compiler and Debian's libibverbs-dev, to compare with")

    def printed(include, path):
        lines = [f"#include {include}", "#include <stdio.h>", "#include <stddef.h>", "int main(void) {"]
        for name, fields in FIELDS.items():
            if name not in GREW:
                lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            lines += [f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));'
                      for field in fields.split()]  # fmt: skip
        source = path.with_suffix(".c")
        source.write_text("\n".join([*lines, "}", ""]))
        subprocess.run([*compiler, f"-I{build.SOURCES}", str(source), "-o", str(path)], check=True)
        return subprocess.run([str(path)], capture_output=True, text=True, check=True).stdout

    assert printed('"verbs.h"', tmp_path / "ours") == printed("<infiniband/verbs.h>", tmp_path / "theirs")


def test_it_compiles_without_a_warning(tmp_path):
    if build.compiler() is None:
        pytest.skip("there is no C compiler")
    build.build(tmp_path / "libibverbs.so.1", ("-Werror", "-O0"))
    assert (tmp_path / "libibverbs.so.1").exists()


def test_clang_compiles_it_without_a_warning(tmp_path, monkeypatch):
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    monkeypatch.setenv("CC", "clang")
    build.build(tmp_path / "libibverbs.so.1", ("-Werror", "-O0"))
    assert (tmp_path / "libibverbs.so.1").exists()


class EndsMeanwhile:
    """A process that is running when it is asked first, and gone when its files are read."""

    stdout = None

    def __init__(self, pid):
        self.pid = pid
        self.answers = iter([None, 0])

    def poll(self):
        return next(self.answers)


def test_a_listener_that_does_not_come_is_awaited_for_a_time(unused_port):
    with pytest.raises(AssertionError, match=f"nobody listens on TCP port {unused_port}"):
        await_listener(unused_port, SimpleNamespace(pid=os.getpid(), poll=lambda: None), within_s=0)


def test_a_listener_that_ends_while_it_is_awaited_is_seen_to_have_ended():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(AssertionError, match="it has ended"):
            await_listener(1, EndsMeanwhile(child))
    finally:
        os.waitpid(child, 0)
