"""Where the ranks of a group stand, and what of the network is theirs."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cluster import device, node_group, parse_cluster
from foretell.comm import Group, group_on
from foretell.errors import InputError


@pytest.mark.parametrize(
    ("cluster", "size", "stride", "per_node", "nodes", "sharing"),
    [
        ("8xh100-sxm", 8, 1, 8, 1, 1),
        ("8xh100-sxm", 2, 1, 2, 1, 1),
        ("8xh100-sxm", 4, 2, 4, 1, 1),
        ("4x8xh100-sxm", 32, 1, 8, 4, 1),
        ("4x8xh100-sxm", 4, 8, 1, 4, 8),
        ("4x8xh100-sxm", 2, 16, 1, 2, 8),
        ("4x8xh100-sxm", 16, 2, 4, 4, 2),
        ("4x8xh100-sxm", 8, 4, 2, 4, 4),
        ("2x8xh100-sxm", 12, 1, 6, 2, 1),
        ("3x2xt4", 3, 1, 1, 3, 2),
        ("16xgb200", 16, 1, 16, 1, 1),
        ("1x8xa100-80gb+2x4xv100-16gb", 16, 1, 4, 4, 1),
        ("h100-sxm", 1, 1, 1, 1, 1),
    ],
)
def test_placement(
    cluster: str, size: int, stride: int, per_node: int, nodes: int, sharing: int
) -> None:
    group = group_on(parse_cluster(cluster), size, stride)
    assert (group.per_node, group.nodes, group.sharing) == (per_node, nodes, sharing)


@given(st.integers(1, 4), st.integers(1, 8), st.data())
def test_any_group_that_fits_is_placed_evenly(nodes: int, gpus: int, data: Any) -> None:
    cluster = parse_cluster(f"{nodes}x{gpus}xa100-80gb")
    size = data.draw(st.integers(1, cluster.total_devices))
    stride = data.draw(st.integers(1, max(1, (cluster.total_devices - 1) // max(1, size - 1))))
    group = group_on(cluster, size, stride)
    assert group.nodes * group.per_node == size
    assert group.per_node * group.sharing <= gpus


def test_a_mixed_cluster_gives_its_narrowest_links() -> None:
    cluster = parse_cluster("1x8xa100-80gb+2x4xv100-16gb")
    assert group_on(cluster, 16).node_group.device.id == "v100-16gb"
    assert group_on(cluster, 2).node_group.gpu_link.id == "nvlink2"


def test_ports_are_shared_and_the_fabric_may_be_thin() -> None:
    cluster = parse_cluster("2x8xh100-sxm:ib-ndr")
    port = 50e9
    assert group_on(cluster, 16).network_bytes_per_s == 8 * port
    assert group_on(cluster, 2, 8).network_bytes_per_s == port
    thin = dataclasses.replace(cluster, oversubscription=4.0)
    assert group_on(thin, 16).network_bytes_per_s == 2 * port
    few = parse_cluster("2x8xh100-sxm:2xib-ndr")
    assert group_on(few, 2, 8).network_bytes_per_s == port / 4


def test_a_lone_rank_uses_the_port_nearest_to_it() -> None:
    nodes = node_group(device("h100-sxm"), count=2, gpus_per_node=8)
    assert Group(2, 1, nodes).network_bytes_per_s == 50e9


@pytest.mark.parametrize(
    ("size", "stride", "message"),
    [
        (0, 1, "size=0 of a group must be a whole number of 1 or more"),
        (2.0, 1, "size=2.0 of a group must be"),
        (2, 0, "stride=0 of a group must be"),
        (17, 1, "17 ranks, every 1. device, need 17 devices and .* has 16: take fewer"),
        (3, 8, "3 ranks, every 8. device, need 17 devices"),
    ],
)
def test_groups_that_cannot_be_are_refused(size: Any, stride: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        group_on(parse_cluster("2x8xh100-sxm"), size, stride)


def test_fields_must_fit_together() -> None:
    nodes = node_group(device("t4"), gpus_per_node=4)
    with pytest.raises(InputError, match="6 ranks cannot have 4 in every node"):
        Group(6, 4, nodes)
    with pytest.raises(InputError, match="per_node=8 ranks do not fit a node of 4"):
        Group(8, 8, nodes)
    with pytest.raises(InputError, match=r"oversubscription=0.5 must be 1 or more"):
        Group(2, 1, nodes, oversubscription=0.5)
    with pytest.raises(InputError, match="sharing=0 of a group"):
        Group(2, 1, nodes, sharing=0)
