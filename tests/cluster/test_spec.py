"""A cluster written as text is read as meant, written back, and refused in a useful sentence."""

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cluster import (
    Cluster,
    NodeGroup,
    device,
    devices,
    link,
    links,
    node_group,
    parse_cluster,
)
from foretell.errors import InputError, UnknownNameError

node_links = st.sampled_from([known for known in links().values() if not known.is_network])
networks = st.sampled_from([known for known in links().values() if known.is_network])


@st.composite
def node_groups(draw: st.DrawFn) -> NodeGroup:
    return node_group(
        draw(st.sampled_from(list(devices().values()))),
        count=draw(st.integers(1, 64)),
        gpus_per_node=draw(st.integers(1, 16)),
        gpu_link=draw(st.none() | node_links),
        network_link=draw(st.none() | networks),
        nics_per_node=draw(st.none() | st.integers(1, 16)),
    )


@given(st.lists(node_groups(), min_size=1, max_size=3))
def test_spec_is_read_back_as_the_same_cluster(groups: list[NodeGroup]) -> None:
    cluster = Cluster(groups=tuple(groups))
    assert parse_cluster(cluster.spec) == cluster
    assert parse_cluster(cluster.spec).spec == cluster.spec


@given(st.text(alphabet="ax0128-:+,. h", max_size=20))
def test_any_text_is_a_cluster_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse_cluster(text).total_devices >= 1


@pytest.mark.parametrize(
    ("text", "spec", "nodes", "total"),
    [
        ("a100-80gb", "a100-80gb", 1, 1),
        ("A100", "a100-80gb", 1, 1),
        ("8xa100-80gb", "8xa100-80gb", 1, 8),
        ("1x8xa100-80gb", "8xa100-80gb", 1, 8),
        ("1x1xt4", "t4", 1, 1),
        ("2x8xa100-80gb", "2x8xa100-80gb", 2, 16),
        ("2x1xt4", "2x1xt4", 2, 2),
        ("16X8Xv100", "16x8xv100-16gb", 16, 128),
        (" 2 x 8 x h100 : ib-ndr ", "2x8xh100-sxm", 2, 16),
        ("2x8xh100:hdr", "2x8xh100-sxm:ib-hdr", 2, 16),
        ("2x8xh100-sxm:ib-ndr:nvlink4", "2x8xh100-sxm", 2, 16),
        ("2x8xh100-sxm:pcie5:hdr", "2x8xh100-sxm:ib-hdr:pcie5", 2, 16),
        ("2x8xa100-40gb:4xefa-100", "2x8xa100-40gb:4xefa-100", 2, 16),
        ("2x8xa100-40gb:8xib-hdr", "2x8xa100-40gb", 2, 16),
        ("8x4090", "8xrtx4090", 1, 8),
        ("4x8xmi300x", "4x8xmi300x", 4, 32),
        ("72xgb200", "72xgb200", 1, 72),
        ("1x8xa100-80gb+2x4xv100-16gb", "8xa100-80gb+2x4xv100-16gb", 3, 16),
        ("t4, l4", "t4+l4", 2, 2),
        ("local", "local", 1, 1),
    ],
)
def test_text_means(text: str, spec: str, nodes: int, total: int) -> None:
    cluster = parse_cluster(text)
    assert (cluster.spec, cluster.total_nodes, cluster.total_devices) == (spec, nodes, total)


def test_network_defaults_to_the_devices_generation() -> None:
    networks = {name: parse_cluster(f"2x8x{name}").groups[0] for name in ("h100", "a100", "v100")}
    assert {n: g.network_link.id for n, g in networks.items()} == {
        "h100": "ib-ndr",
        "a100": "ib-hdr",
        "v100": "eth-25g",
    }
    assert {n: g.nics_per_node for n, g in networks.items()} == {"h100": 8, "a100": 8, "v100": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cluster '' is empty: write for example a100-80gb"),
        ("a100+", r"cluster 'a100\+' has an empty group"),
        ("0xa100", "cluster '0xa100' has the count 0: write a whole number of 1 or more"),
        ("0x8xa100", "has the count 0"),
        ("9" * 5000 + "x8xa100", "up to a million"),
        ("2000000x8xa100", "count=2000000 must be at most 1000000"),
        ("a100:zz", "use one of nvlink1"),
        ("zz81", "'foretell devices' lists them"),
        ("2x0xa100", "has the count 0"),
        ("-2x8xa100", "has the count -2"),
        ("1.5xa100", "has the count 1.5"),
        ("8x", "cluster '8x' is not NODESxGPUSxDEVICE"),
        ("2x2x2xa100", "is not NODESxGPUSxDEVICE"),
        ("64xh100", "64 devices in one node, at most 16 fit: write 8x8xh100-sxm"),
        ("8xa100:", "cluster '8xa100:' has no link after a colon: write :ib-ndr"),
        ("8xa100:2x2xib-ndr", "has no link after a colon"),
        ("2x8xa100:ib-hdr:ib-ndr", "names two networks: keep one"),
        ("8xa100:nvlink3:pcie4", "names two GPU links: keep one"),
        ("8xa100:2xnvlink3", "counts ports of nvlink3: only networks have ports"),
        ("2x8xa100:0xib-ndr", "has the count 0"),
        ("lab.toml", "cluster file 'lab.toml' does not exist: check the path"),
    ],
)
def test_bad_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_cluster(text)
    assert caught.value.exit_code == 2


def test_unknown_names_come_with_near_matches() -> None:
    with pytest.raises(UnknownNameError, match="unknown device 'h100-sxn': did you mean h100-sxm"):
        parse_cluster("2x8xh100-sxn")
    with pytest.raises(UnknownNameError, match="unknown link 'ib-ndx': did you mean ib-ndr"):
        parse_cluster("2x8xh100:ib-ndx")


def test_price_is_summed_over_the_devices() -> None:
    low, high = device("t4").price_usd_per_hour or (0, 0)
    assert parse_cluster("2x4xt4").price_usd_per_hour == pytest.approx((8 * low, 8 * high))
    assert parse_cluster("t4+cpu").price_usd_per_hour is None


def test_price_of_a_group_overrides_the_catalogues() -> None:
    group = node_group(device("cpu"), count=3, price_usd_per_hour=(0.5, 1.0))
    assert Cluster(groups=(group,)).price_usd_per_hour == (1.5, 3.0)
    free = node_group(device("t4"), price_usd_per_hour=(0.0, 0.0))
    assert Cluster(groups=(free,)).price_usd_per_hour == (0.0, 0.0)


def test_cluster_tells_what_it_is_made_of() -> None:
    mixed = parse_cluster("8xa100+4xt4+8xa100")
    assert [d.id for d in mixed.devices] == ["a100-80gb", "t4"]
    assert not mixed.is_homogeneous
    assert not mixed.is_single_device
    assert parse_cluster("t4").is_single_device
    assert parse_cluster("2x8xa100").is_homogeneous
    assert str(dataclasses.replace(mixed, name="lab")) == "lab"
    assert str(parse_cluster("t4")) == "t4"


def test_clusters_refuse_nonsense() -> None:
    group = node_group(device("t4"))
    with pytest.raises(InputError, match="at least one group"):
        Cluster(groups=())
    with pytest.raises(InputError, match=r"oversubscription=0.5 must be 1 or more"):
        Cluster(groups=(group,), oversubscription=0.5)
    with pytest.raises(InputError, match="nodes of t4: count=0 must be a whole number"):
        node_group(device("t4"), count=0)
    with pytest.raises(InputError, match="nodes of t4: host_memory_bytes=-1 must be"):
        node_group(device("t4"), host_memory_bytes=-1)
    with pytest.raises(InputError, match="nodes of t4: price 2 to 1 must be"):
        node_group(device("t4"), price_usd_per_hour=(2, 1))
    with pytest.raises(InputError, match=r"link 'nvlink4' \(nvlink\) cannot join nodes"):
        node_group(device("t4"), network_link=link("nvlink4"))
    with pytest.raises(InputError, match=r"link 'ib-ndr' \(infiniband\) cannot join the GPUs"):
        node_group(device("t4"), gpu_link=link("ib-ndr"))
