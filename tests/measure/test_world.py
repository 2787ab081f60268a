"""Where a crew runs, as people write it."""

from __future__ import annotations

import pytest

from foretell.cluster import parse_cluster
from foretell.errors import InputError
from foretell.measure.world import World, format_rate, parse_hosts, parse_rate


def test_one_is_this_machine() -> None:
    assert World(**parse_hosts("1")).nodes == 1


def test_two_with_a_rate_are_namespaces() -> None:
    world = World(processes=1, threads=1, **parse_hosts("2@100mbit"))
    assert (world.nodes, world.total, world.bits_per_s) == (2, 2, 1e8)
    assert world.cluster == "2x1xlocal@1:eth-100m"


def test_names_are_machines_beside_this_one() -> None:
    world = World(processes=4, threads=1, **parse_hosts("node1, me@node2"))
    assert (world.nodes, world.total) == (3, 12)


def test_the_cluster_of_a_world_can_be_forecast_for() -> None:
    cluster = parse_cluster(World(processes=2, threads=1).cluster)
    assert cluster.total_devices == 2
    assert cluster.devices[0].sm_count == 1


@pytest.mark.parametrize(("text", "rate"), [("1gbit", 1e9), ("2.5Gbit", 2.5e9), ("50kbit", 5e4)])
def test_rates_are_read_and_written(text: str, rate: float) -> None:
    assert parse_rate(text) == rate
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize("text", ["2@fast", "3", "a b", "-x", "2@0gbit", "node1,,node2", "$(id)"])
def test_hosts_nobody_can_mean_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        World(**parse_hosts(text))


@pytest.mark.parametrize("fields", [{"processes": 0}, {"processes": 1000}, {"threads": -1}])
def test_numbers_out_of_range_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InputError):
        World(**fields)
