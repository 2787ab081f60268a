"""A cluster file of the user's own is read as its manual says, and refused with file and key."""

import re
import tomllib
from pathlib import Path

import pytest

from foretell.cluster import Cluster, device, link, parse_cluster
from foretell.cluster import file as cluster_file
from foretell.errors import InputError, UnknownNameError

NODES = '[[nodes]]\ndevice = "a100-80gb"\n'


def read(tmp_path: Path, content: str) -> Cluster:
    path = tmp_path / "lab.toml"
    path.write_text(content, encoding="utf-8")
    return parse_cluster(str(path))


def test_only_a_device_is_needed(tmp_path: Path) -> None:
    cluster = read(tmp_path, NODES)
    assert cluster.spec == "8xa100-80gb"
    assert cluster == parse_cluster("8xa100-80gb")


def test_everything_can_be_said(tmp_path: Path) -> None:
    cluster = read(
        tmp_path,
        """
        name = "lab"
        oversubscription = 2

        [[nodes]]
        device = "my-gpu"
        count = 2
        gpus_per_node = 4
        network_link = "my-fabric"
        nics_per_node = 2
        gpu_link = "pcie4"
        host_memory_gib = 512
        price_usd_per_hour = [1.5, 2.5]

        [[nodes]]
        device = "t4"
        gpus_per_node = 4
        node_price_usd_per_hour = 2.0

        [devices.my-gpu]
        like = "A100"
        name = "My GPU"
        memory_gib = 96
        peak_tflops = { bf16 = 400, fp8 = 800 }

        [links.my-fabric]
        kind = "roce"
        bandwidth_gb_per_s = 20
        latency_us = 6.5
        """,
    )
    mine, cheap = cluster.groups
    assert (cluster.name, cluster.oversubscription, cluster.total_devices) == ("lab", 2.0, 12)
    assert cluster.spec == "2x4xmy-gpu:2xmy-fabric:pcie4+4xt4"
    assert mine.device.memory_bytes == 96 * 2**30
    assert mine.device.peak("bf16") == 400e12
    assert mine.device.peak("fp8") == 800e12
    assert mine.device.peak("fp16") == device("a100").peak("fp16")
    assert mine.device.family == "ampere-dc"
    assert mine.network_link.bandwidth_bytes_per_s == 20e9
    assert mine.network_link.latency_s == pytest.approx(6.5e-6)
    assert mine.host_memory_bytes == 512 * 2**30
    assert mine.device_price_usd_per_hour == (1.5, 2.5)
    assert cheap.device_price_usd_per_hour == (0.5, 0.5)
    assert cluster.price_usd_per_hour == pytest.approx((8 * 1.5 + 2, 8 * 2.5 + 2))


def test_a_known_link_can_be_corrected(tmp_path: Path) -> None:
    cluster = read(tmp_path, NODES + "count = 2\n[links.ib-hdr]\nlatency_us = 9\n")
    corrected = cluster.groups[0].network_link
    assert corrected.latency_s == pytest.approx(9e-6)
    assert corrected.bandwidth_bytes_per_s == link("ib-hdr").bandwidth_bytes_per_s
    assert link("ib-hdr").latency_s != corrected.latency_s


def test_a_known_device_can_be_corrected(tmp_path: Path) -> None:
    cluster = read(tmp_path, NODES + "[devices.a100-80gb]\nprice_usd_per_hour = 1.25\n")
    assert cluster.price_usd_per_hour == (10.0, 10.0)
    assert cluster.devices[0].price_as_of == ""
    assert cluster.devices[0].memory_bytes == device("a100").memory_bytes


def test_own_devices_can_build_on_each_other(tmp_path: Path) -> None:
    content = """
        [[nodes]]
        device = "second"
        [devices.first]
        like = "h100"
        tdp_w = 500
        [devices.second]
        like = "first"
        launch_overhead_us = 2.5
        """
    second = read(tmp_path, content).devices[0]
    assert second.tdp_w == 500
    assert second.launch_overhead_s == pytest.approx(2.5e-6)


def test_a_device_can_be_described_from_nothing(tmp_path: Path) -> None:
    content = """
        [[nodes]]
        device = "new"
        [devices.new]
        vendor = "intel"
        architecture = "xe"
        family = "xe"
        peak_tflops = { fp32 = 50, bf16 = 400 }
        vector_tflops = 50
        memory_gib = 64
        memory_bandwidth_gb_per_s = 1600
        l2_mib = 200
        sm_count = 64
        clock_mhz = 1600
        gpu_link = "pcie5"
        host_link = "pcie5"
        network = "eth-100g"
        """
    cluster = read(tmp_path, content)
    assert cluster.is_single_device
    assert cluster.devices[0].name == "new"
    assert cluster.price_usd_per_hour is None


def test_the_manuals_example_works(tmp_path: Path) -> None:
    assert cluster_file.__doc__ is not None
    example = "\n".join(
        line[4:] for line in cluster_file.__doc__.splitlines() if line.startswith("    ")
    )
    assert set(tomllib.loads(example)) == {"name", "oversubscription", "nodes", "devices", "links"}
    assert read(tmp_path, example).total_devices == 16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name = 'lab'", "has no nodes: add [[nodes]]"),
        ("nodes = 3", "has no nodes"),
        ("[[nodes]]\ncount = 2", "nodes 1 names no device: add device ="),
        ("[[nodes]]\ndevice = 4090", "nodes 1: device is 4090: write a text in quotes"),
        (NODES + "count = 0", "nodes 1: count is 0: write a whole number of 1 or more"),
        (NODES + "count = -2", "count is -2"),
        (NODES + "count = 1000000000000", "count is 1000000000000: write at most 1e+09"),
        (NODES + "count = 2000000", "count=2000000 must be at most 1000000"),
        (NODES + "[devices.x]\nlike = 't4'\nmemory_gib = 1e300", "memory_gib is 1e+300"),
        (NODES + "[devices.x]\nlike = 't4'\nmemory_gib = 1" + "0" * 400, "memory_gib is 1000"),
        (NODES + "[links.x]\nlike = 'ndr'\nbandwidth_gb_per_s = 1e-300", "between 1e-06 and 1e+09"),
        (NODES + "count = " + "9" * 5000, "not valid TOML"),
        (NODES + "x = " + "[" * 100_000, "not valid TOML"),
        (NODES + "gpu_link = 'zz'", "use one of nvlink1"),
        ("[[nodes]]\ndevice = 'zz'", "'foretell devices' lists them"),
        (NODES + "count = 2.0", "count is 2.0"),
        (NODES + "count = true", "count is True"),
        (NODES + "gpus_per_node = 0", "gpus_per_node is 0"),
        (NODES + "nics_per_node = '4'", "nics_per_node is '4'"),
        (
            NODES + "host_memory_gib = '512 GiB'",
            "host_memory_gib is '512 GiB': write a positive number without quotes or units",
        ),
        (NODES + "price_usd_per_hour = -1", "price_usd_per_hour is -1: write a number of 0 or"),
        (NODES + "price_usd_per_hour = [1, 2, 3]", "write one number or [low, high]"),
        (NODES + "price_usd_per_hour = [2, 1]", "write the lower price first"),
        (NODES + "price_usd_per_hour = [1, 'two']", "price_usd_per_hour[1] is 'two'"),
        (
            NODES + "price_usd_per_hour = 1\nnode_price_usd_per_hour = 8",
            "has price_usd_per_hour and node_price_usd_per_hour: keep one",
        ),
        (NODES + "network_link = 'nvlink3'", "link 'nvlink3' (nvlink) cannot join nodes"),
        ("oversubscription = 0.5\n" + NODES, "oversubscription is 0.5: write 1 or more"),
        ("oversubscription = 'no'\n" + NODES, "oversubscription is 'no': write a positive number"),
        ("name = ''\n" + NODES, "name is '': write a text in quotes"),
        ("devices = 1\n" + NODES, "devices is 1: write it as a table, [devices]"),
        (NODES + "[devices]\nmine = 1", "devices.mine is 1: write it as a table"),
        (NODES + "[devices.mine]\nmemory_gib = 96", "devices.mine lacks vendor, architecture"),
        (
            NODES + "[devices.mine]\nlike = 'a100'\nmemory_gib = -1",
            "devices.mine: memory_gib is -1: write a positive number",
        ),
        (
            NODES + "[devices.mine]\nlike = 'a100'\npeak_tflops = 312",
            "devices.mine.peak_tflops is 312: write it as { fp32",
        ),
        (NODES + "[devices.mine]\nlike = 'a100'\nvendor = 'nvidai'", "device 'mine': 'nvidai'"),
        (NODES + "[links.mine]\nkind = 'roce'", "links.mine lacks bandwidth_gb_per_s, latency_us"),
        (NODES + "[links]\nmine = 1", "links.mine is 1: write it as a table"),
        (NODES + "[links.mine]\nlike = 'ndr'\nlatency_us = inf", "latency_us is inf"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "what", "near"),
    [
        (NODES + "gpu_per_node = 8", "key in .*lab.toml: nodes 1: 'gpu_per_node'", "gpus_per_node"),
        ("node = 1\n" + NODES, "key in .*lab.toml: 'node'", "nodes"),
        (NODES + "[devices.x]\nlike = 'a100'\nmemory_gb = 1", "'memory_gb'", "memory_gib"),
        (
            NODES + "[devices.x]\nlike = 'a100'\npeak_tflops = {bf61 = 1}",
            "devices.x.peak_tflops: 'bf61'",
            "bf16",
        ),
        (NODES + "[links.x]\nlike = 'ndr'\nlatency_ms = 1", "links.x: 'latency_ms'", "latency_us"),
        ("[[nodes]]\ndevice = 'a10o'", "device in .*lab.toml: nodes 1: 'a10o'", "a100"),
        (NODES + "network_link = 'ib-ndx'", "link in .*nodes 1: 'ib-ndx'", "ib-ndr"),
        (NODES + "[devices.x]\nlike = 'a10o'", "device in .*devices.x: 'a10o'", "a100"),
        (NODES + "[links.x]\nlike = 'ib-ndx'", "link in .*links.x: 'ib-ndx'", "ib-ndr"),
        (
            "[[nodes]]\ndevice = 'x'\n[devices.x]\nlike = 'a100'\ngpu_link = 'nvlink33'",
            "link in .*nodes 1: 'nvlink33'",
            "nvlink3",
        ),
        ("[[nodes]]\ndevice = 'mine2'\n[devices.mine]\nlike = 'a100'", "'mine2'", "mine"),
    ],
)
def test_unknown_names_come_with_near_matches(
    tmp_path: Path, content: str, what: str, near: str
) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown .*{what}") as caught:
        read(tmp_path, content)
    assert near in caught.value.near


def test_a_key_unlike_any_gets_the_list(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'zzz': known are name, oversubscription, nodes"):
        read(tmp_path, "zzz = 1\n" + NODES)


def test_bad_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lab.toml' is not valid TOML: .*line 3"):
        read(tmp_path, NODES + "count = = 2\n")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist: check the path"):
        parse_cluster(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        parse_cluster(str(tmp_path / "folder.toml"))
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff\xfe"')
    with pytest.raises(InputError, match="is not UTF-8 text"):
        parse_cluster(str(tmp_path / "bytes.toml"))
