"""``SOFTHCA_DEVICES``: what each spelling means, and which word an error names."""

import ipaddress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.adapter import config
from softhca.adapter.config import GID_ENTRIES
from softhca.links import interfaces, netlink
from softhca.runtime.assembly import _congestion, _gid_entries
from softhca.runtime.specification import (
    ALL_ADDRESSES,
    DEFAULT,
    MAX_DEVICES,
    DeviceSpecification,
    DeviceSpecificationError,
    further_addresses,
    parse,
    parse_one,
    resolve,
    with_same_host,
)
from softhca.transport.congestion import DcqcnSettings

ACCEPTED = [
    ("softhca0=udp:192.0.2.7", [("softhca0", "udp", "192.0.2.7", 0)]),
    ("softhca0=udp:eth0", [("softhca0", "udp", "eth0", 0)]),
    ("softhca0=udp:eth0.100", [("softhca0", "udp", "eth0.100", 0)]),
    ("softhca0=udp:[2001:db8::1]", [("softhca0", "udp", "2001:db8::1", 0)]),
    ("softhca0=udp:[2001:DB8:0::1]", [("softhca0", "udp", "2001:db8::1", 0)]),
    ("softhca0=udp:127.0.0.2?mtu=1024", [("softhca0", "udp", "127.0.0.2", 1024)]),
    ("softhca0=udp:*?mtu=2048&buffer=212992", [("softhca0", "udp", "", 2048)]),
    ("softhca0=udp:[::1]?mtu=256", [("softhca0", "udp", "::1", 256)]),
    ("a=udp:127.0.0.2,b=udp:127.0.0.3", [("a", "udp", "127.0.0.2", 0), ("b", "udp", "127.0.0.3", 0)]),
    (" a=udp:127.0.0.2 , b=unix:/run/x y ", [("a", "udp", "127.0.0.2", 0), ("b", "unix", "/run/x y", 0)]),
    ("a=udp:*,b=udp:*?mtu=512", [("a", "udp", "", 0), ("b", "udp", "", 512)]),
    ("mlx-5.0_x=udp:lo", [("mlx-5.0_x", "udp", "lo", 0)]),
    ("a=udp:*?segmenting=192.0.2.1+2001:db8::1&mtu=256", [("a", "udp", "", 256)]),
    ("a=udp:127.0.0.2+udp:127.0.0.3?mtu=512", [("a", "udp", "127.0.0.2", 512)]),
    ("a=udp:[::1]+udp:*+udp:eth0", [("a", "udp", "::1", 0)]),
    ("a=udp:*?check_identification=1", [("a", "udp", "", 0)]),
    ("a=unix:/run/\udcff", [("a", "unix", "/run/\udcff", 0)]),  # a byte of the environment that is no text
]

REFUSED = [
    ("softhca0", "'softhca0'"),
    ("=udp:127.0.0.2", "''"),
    ("0softhca=udp:127.0.0.2", "'0softhca'"),
    ("a b=udp:127.0.0.2", "'a b'"),
    ("x" * 64 + "=udp:127.0.0.2", "x" * 64),
    ("a=tcp:127.0.0.2", "'tcp'"),
    ("a=127.0.0.2", "'127.0.0.2'"),
    ("a=udp", "'udp'"),
    ("a=udp:127.0.0.2+unix:/run/x", "'unix:/run/x'"),
    ("a=udp:127.0.0.2+127.0.0.3", "'127.0.0.3'"),
    ("a=udp:127.0.0.2+", "''"),
    ("a=udp:127.0.0.2+udp:0.0.0.0", "'0.0.0.0'"),
    ("a=udp:127.0.0.2+udp:127.0.0.2", "'udp:127.0.0.2+udp:127.0.0.2'"),
    ("a=udp:127.0.0.2+udp:127.0.0.3,b=udp:127.0.0.3", "'127.0.0.3'"),
    ("a=" + "+".join(["udp:*"] * 256), "256"),
    ("a=udp:", "''"),
    ("a=udp:[127.0.0.2]", "'[127.0.0.2]'"),
    ("a=udp:2001:db8::1", "'2001:db8::1'"),
    ("a=udp:[2001:db8::1", "'[2001:db8::1'"),
    ("a=udp:0.0.0.0", "'0.0.0.0'"),
    ("a=udp:224.0.0.1", "'224.0.0.1'"),
    ("a=udp:255.255.255.255", "'255.255.255.255'"),
    ("a=udp:[::ffff:192.0.2.1]", "'[::ffff:192.0.2.1]'"),
    ("a=udp:averyveryverylongname", "'averyveryverylongname'"),
    ("a=udp:127.0.0.2?mtu=1500", "'1500'"),
    ("a=udp:127.0.0.2?mtu=", "''"),
    ("a=udp:127.0.0.2?mtu=²", "'²'"),
    ("a=udp:127.0.0.2?speed=1", "'speed'"),
    ("a=udp:127.0.0.2?buffer=131071", "'131071'"),
    ("a=udp:127.0.0.2?buffer=9999999999999", "'9999999999999'"),
    ("a=udp:127.0.0.2?mtu=256&buffer=-1", "'-1'"),
    ("a=udp:127.0.0.2?addresses=", "''"),
    ("a=udp:127.0.0.2?addresses=eth0", "'eth0'"),
    ("a=udp:127.0.0.2?addresses=[::1]", "'[::1]'"),
    ("a=udp:127.0.0.2?addresses=::1+all", "'all'"),
    ("a=udp:127.0.0.2?addresses=224.0.0.1", "'224.0.0.1'"),
    ("a=udp:127.0.0.2?addresses=::ffff:127.0.0.3", "write the IPv4 address itself"),
    ("a=udp:127.0.0.2?addresses=127.0.0.3+127.0.0.3", "different ones"),
    ("a=udp:127.0.0.2?addresses=" + "+".join(f"127.0.0.{n}" for n in range(3, 19)), "1…15"),
    ("a=udp:127.0.0.2?addresses=127.0.0.2", "addresses of 'a': they are those besides its own"),
    ("a=udp:127.0.0.2?addresses=127.0.0.3,b=udp:127.0.0.3", "'127.0.0.3' is given to two"),
    ("a=udp:127.0.0.2+udp:127.0.0.3?addresses=127.0.0.4", "several ports"),
    ("a=fabric:sim?addresses=127.0.0.4", "'addresses'"),
    ("a=udp:127.0.0.2?gids=0", "'0'"),
    ("a=udp:127.0.0.2?gids=17", "'17'"),
    ("a=udp:127.0.0.2?gids=", "''"),
    ("a=fabric:sim?gids=many", "'many'"),
    ("a=udp:127.0.0.2?window=62959", "'62959'"),
    ("a=udp:127.0.0.2?window=1073741825", "'1073741825'"),
    ("a=udp:127.0.0.2?segmenting=", "''"),
    ("a=udp:127.0.0.2?segmenting=127.0.0.3+[::1]", "'[::1]'"),
    ("a=udp:127.0.0.2?check_identification=yes", "'yes'"),
    ("a=udp:127.0.0.2?profile=tca+write", "'tca+write'"),
    ("a=udp:127.0.0.2?profile=switch", "'switch'"),
    ("a=udp:127.0.0.2?source_port=loose", "'loose'"),
    ("a=udp:127.0.0.2?congestion=on", "'on'"),
    ("a=udp:127.0.0.2?congestion=", "''"),
    ("a=udp:127.0.0.2?uniform=yes", "'yes'"),
    ("a=fabric:sim?uniform=0", "'uniform'"),
    ("a=udp:127.0.0.2?rate=9", "'9'"),
    ("a=udp:127.0.0.2?rate=1000001", "'1000001'"),
    ("a=udp:127.0.0.2?rate=fast", "'fast'"),
    ("a=unix:", "''"),
    ("a=unix:" + "p" * 108, "p" * 108),
    ("a=unix:" + "\udcff" * 108, "udcff"),
    ("a=unix:/run/\ud800", "ud800"),
    ("a=udp:127.0.0.2,a=udp:127.0.0.3", "'a' is given twice"),
    ("a=udp:127.0.0.2,b=udp:127.0.0.2", "'127.0.0.2' is given to two"),
    ("a=udp:[::1],b=udp:[0::1]", "'::1' is given to two"),
    ("a=udp:127.0.0.2,", "''"),
]


@pytest.mark.parametrize(("text", "devices"), ACCEPTED)
def test_a_device_list_is_read_in_order(text, devices):
    assert [(d.name, d.kind, d.place, d.mtu_bytes) for d in parse(text)] == devices


@pytest.mark.parametrize(("text", "word"), REFUSED)
def test_an_error_is_one_line_and_names_the_bad_word(text, word):
    with pytest.raises(DeviceSpecificationError) as caught:
        parse(text)
    message = str(caught.value)
    assert word in message
    assert "\n" not in message
    assert message.startswith("SOFTHCA_DEVICES: ")


@pytest.mark.parametrize("text", ["", " ", "\t"])
def test_nothing_said_gives_one_device_on_a_free_loopback_address(text):
    assert parse(text) == (DEFAULT,)
    assert DeviceSpecification("softhca0", "udp", "") == DEFAULT


def test_a_buffer_size_is_bytes():
    assert parse("a=udp:*?buffer=212992")[0].buffer_bytes == 212_992


@pytest.mark.parametrize("window", [62_960, 1 << 30])
def test_a_window_is_bytes(window):
    device = parse_one(f"a=udp:*?window={window}")
    assert device.window_bytes == window
    assert parse_one(str(device)) == device


@pytest.mark.parametrize("gids", [1, 16])
def test_a_gid_tables_entries_are_a_number(gids):
    device = parse_one(f"a=udp:*?gids={gids}")
    assert device.gids == gids
    assert parse_one(str(device)) == device


@pytest.mark.parametrize(("value", "entries"), [("", GID_ENTRIES), ("?gids=1", 1), ("?gids=9", 9)])
def test_an_ethernet_that_is_served_has_the_entries_and_a_native_fabric_one(value, entries):
    device = parse_one("a=fabric:sim" + value)
    assert _gid_entries(device, False) == entries
    if not value:
        assert _gid_entries(device, True) == GID_ENTRIES
        return
    with pytest.raises(DeviceSpecificationError, match=r"gids of 'a': a native port .* is a native fabric"):
        _gid_entries(device, True)


def test_peers_that_get_whole_bursts_are_addresses_in_their_canonical_form():
    assert parse_one("a=udp:*?segmenting=192.0.2.1+2001:DB8:0::1").segmenting == ("192.0.2.1", "2001:db8::1")
    assert parse_one("a=udp:*").segmenting == ()


@pytest.mark.parametrize(("value", "checks"), [("0", False), ("1", True)])
def test_the_check_of_identifications_is_a_switch(value, checks):
    assert parse_one(f"a=udp:*?check_identification={value}").check_identification is checks


@pytest.mark.parametrize(("value", "uniform"), [("", True), ("?uniform=1", True), ("?uniform=0", False)])
def test_packets_of_one_length_are_a_switch_that_is_on(value, uniform):
    device = parse_one("a=udp:*" + value)
    assert device.uniform is uniform
    assert str(device) == "a=udp:*" + value.replace("?uniform=1", "")


@pytest.mark.parametrize(("value", "congestion", "rate"), [
    ("", False, 0), ("?congestion=off", False, 0), ("?congestion=dcqcn", True, 0),
    ("?congestion=dcqcn&rate=10000", True, 10_000),
])  # fmt: skip
def test_congestion_control_is_off_or_dcqcn(value, congestion, rate):
    device = parse_one("a=udp:*" + value)
    assert (device.congestion, device.rate_mbps) == (congestion, rate)
    assert str(device) == "a=udp:*" + value.replace("?congestion=off", "")
    made = _congestion(device, None)
    assert made == (DcqcnSettings(line_mbps=rate or 100_000) if congestion else None)


def test_a_served_ethernet_says_its_speed_and_a_native_fabric_has_no_dcqcn():
    device = parse_one("a=fabric:sim?congestion=dcqcn")
    made = _congestion(device, SimpleNamespace(is_native=False, mbps=25_000))
    assert made == DcqcnSettings(line_mbps=25_000)
    with pytest.raises(DeviceSpecificationError, match=r"congestion of 'a': DCQCN .* is a native fabric"):
        _congestion(device, SimpleNamespace(is_native=True))


@pytest.mark.parametrize(("value", "strict"), [("any", False), ("strict", True)])
def test_source_ports_of_peers_are_any_or_one(value, strict):
    device = parse_one(f"a=udp:*?source_port={value}")
    assert device.strict_source_port is strict
    assert parse_one(str(device)) == device


def test_the_number_of_devices_is_bounded():
    words = [f"d{i}=udp:127.0.1.{i}" for i in range(1, MAX_DEVICES + 2)]
    assert len(parse(",".join(words[:-1]))) == MAX_DEVICES
    with pytest.raises(DeviceSpecificationError, match=f"{MAX_DEVICES + 1} devices, at most {MAX_DEVICES}"):
        parse(",".join(words))


@pytest.mark.parametrize("text", [case[0].split(",")[0] for case in ACCEPTED])
def test_a_specification_prints_as_it_is_parsed(text):
    device = parse_one(text)
    assert parse_one(str(device)) == device


@given(st.text(max_size=40))
def test_any_text_is_a_device_list_or_a_clear_error(text):
    try:
        devices = parse(text)
    except DeviceSpecificationError as error:
        devices, message = (), str(error)
    else:
        message = ""
    assert devices or message.startswith("SOFTHCA_DEVICES: ")


def test_an_address_resolves_to_itself():
    assert resolve("192.0.2.7") == "192.0.2.7"
    assert resolve("2001:db8::1") == "2001:db8::1"


def test_an_interface_resolves_to_its_first_ipv4_address():
    assert resolve("lo") == "127.0.0.1"


def test_an_unknown_interface_is_named():
    with pytest.raises(DeviceSpecificationError, match="there is no interface 'nosuch0'"):
        resolve("nosuch0")


@pytest.mark.parametrize(
    ("value", "profile"), [("hca", "hca"), ("tca", "tca"), ("tca+write+uc", "tca+uc+write")]
)
def test_profile(value, profile):
    specification = parse_one(f"a=udp:*?profile={value}")
    assert specification.profile == profile
    assert parse_one(str(specification)) == specification
    assert parse_one("a=udp:*").profile == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "softhca0=udp:*?same_host=0"),
        ("a=udp:lo?mtu=1024,b=unix:/run/x", "a=udp:lo?mtu=1024&same_host=0,b=unix:/run/x"),
        ("a=udp:[::1]?same_host=1,b=udp:*?same_host=0", "a=udp:[::1]?same_host=0,b=udp:*?same_host=0"),
    ],
)
def test_all_devices_that_have_packets_can_be_told_to_use_them(text, expected):
    assert with_same_host(text, False) == expected
    assert with_same_host(text, True) == expected.replace("same_host=0", "same_host=1")


def test_a_wrong_text_is_not_changed_but_refused():
    with pytest.raises(DeviceSpecificationError, match="'tcp'"):
        with_same_host("a=tcp:1", False)


def test_a_device_has_a_port_for_each_place():
    (device,) = parse("a=udp:127.0.0.2+udp:*+udp:[::1]?mtu=512&profile=tca+uc")
    assert device.places == ("127.0.0.2", "", "::1")
    assert str(device) == "a=udp:127.0.0.2+udp:*+udp:[::1]?mtu=512&profile=tca+uc"
    assert device.at("127.0.0.9").places == ("127.0.0.9",)
    assert device.at("").mtu_bytes == 512


def test_a_device_has_several_ports_of_one_host_of_a_fabric() -> None:
    text = "a=fabric:sim/h3[1]+fabric:sim/h3[2]?window=1000000"
    (device,) = parse(text)
    assert device.places == ("sim/h3[1]", "sim/h3[2]")
    assert str(device) == text
    assert parse("a=fabric:sim/h3[2]")[0].places == ("sim/h3[2]",)
    for wrong in (
        "fabric:sim/h3[1]+fabric:sim/h4[2]",
        "fabric:sim/h3[1]+fabric:sam/h3[2]",
        "fabric:sim/h3[1]+fabric:sim/h3[1]",
        "fabric:sim/h3+fabric:sim/h3[2]",
        "fabric:sim+fabric:sim",
        "fabric:sim/h3[1]+udp:*",
        "fabric:sim/h3[]",
        "fabric:sim/h3[1000]",
        "fabric:sim[1]",
        "+".join(f"fabric:sim/h3[{port}]" for port in range(1, 300)),
    ):
        with pytest.raises(DeviceSpecificationError):
            parse(f"a={wrong}")
    with pytest.raises(DeviceSpecificationError, match="given to two devices"):
        parse("a=fabric:sim/h3[1]+fabric:sim/h3[2],b=fabric:sim/h3[2]")


@pytest.mark.parametrize(
    ("option", "attribute", "good", "bad"),
    [
        ("buffer", "buffer_bytes", (131_072, 1 << 30), (131_071, (1 << 30) + 1)),
        ("rate", "rate_mbps", (10, 1_000_000), (9, 1_000_001)),
        ("vni", "vni", (0, (1 << 24) - 1), (-1, 1 << 24)),
        ("window", "window_bytes", (config.MINIMUM_WINDOW_BYTES, config.MAXIMUM_WINDOW_BYTES),
         (config.MINIMUM_WINDOW_BYTES - 1, config.MAXIMUM_WINDOW_BYTES + 1)),
        ("gids", "gids", (1, config.GID_TABLE_LENGTH), (0, config.GID_TABLE_LENGTH + 1)),
    ],
)
def test_numbers_are_taken_up_to_their_bounds_and_written_as_they_were(option, attribute, good, bad):
    for number in good:
        word = f"a=udp:127.0.0.5?{option}={number}"
        assert getattr(parse_one(word), attribute) == number
        assert str(parse_one(word)) == word
    for number in bad:
        with pytest.raises(DeviceSpecificationError, match=option):
            parse_one(f"a=udp:127.0.0.5?{option}={number}")


def test_a_device_has_so_many_ports_each_at_a_place_of_its_own():
    def word(count):
        return "a=" + "+".join(f"udp:127.0.{n >> 8}.{n & 255}" for n in range(1, count + 1))

    assert len(parse_one(word(config.MAX_PORTS)).places) == config.MAX_PORTS
    with pytest.raises(DeviceSpecificationError, match=f"at most {config.MAX_PORTS}"):
        parse_one(word(config.MAX_PORTS + 1))
    with pytest.raises(DeviceSpecificationError, match="of one host"):
        parse_one("a=fabric:F/h3[1]+fabric:F/h3[2]+fabric:F/h3[1]")


@pytest.mark.parametrize(("value", "addresses"), [
    ("127.0.0.3", ("127.0.0.3",)),
    ("127.0.0.3+2001:db8:0::1", ("127.0.0.3", "2001:db8::1")),
    ("+".join(f"127.0.0.{n}" for n in range(3, 18)), tuple(f"127.0.0.{n}" for n in range(3, 18))),
    ("all", ALL_ADDRESSES),
])
def test_a_port_may_have_further_addresses(value, addresses):
    device = parse_one(f"a=udp:127.0.0.2?addresses={value}")
    assert device.addresses == addresses
    assert parse_one(str(device)) == device


def test_all_addresses_are_those_of_the_interface_that_packets_can_come_to(monkeypatch):
    device = parse_one("a=udp:192.0.2.1?addresses=all")
    entries = [netlink.InterfaceAddress(index, ipaddress.ip_address(text).packed, 24) for index, text in (
        (7, "192.0.2.1"), (8, "192.0.2.2"), (7, "192.0.2.3"), (7, "fe80::1"), (7, "2001:db8::1"),
        *((7, f"198.51.100.{n}") for n in range(20)))]
    monkeypatch.setattr(netlink, "addresses", lambda: entries)
    monkeypatch.setattr(interfaces, "interface_of_address", lambda text: "eth7")
    monkeypatch.setattr(interfaces, "index_of_interface", lambda name: 7)
    found = further_addresses(device, "192.0.2.1")
    assert found[:4] == ["192.0.2.3", "2001:db8::1", "198.51.100.0", "198.51.100.1"]
    assert len(found) == 15, "with the first one a table of 16"
    named = parse_one("a=udp:eth7?addresses=192.0.2.1+192.0.2.9")
    assert further_addresses(named, "192.0.2.1") == ["192.0.2.9"]
