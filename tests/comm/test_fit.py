"""Constants of links found from times of collectives."""

from __future__ import annotations

import pytest

from foretell.cluster import device, parse_cluster
from foretell.comm import Collective, Constants, collective_s, group_on
from foretell.comm.fit import CollectiveTime, fit_link

CPU = device("cpu")
SIZES = [2.0**power for power in range(10, 27, 2)]


@pytest.mark.parametrize("kind", list(Collective))
def test_a_link_that_starts_and_streams_is_found_again(kind: Collective) -> None:
    pair = group_on(parse_cluster("2x1xcpu:eth-1g"), size=2)
    link = pair.node_group.network_link
    kinds = {kind, Collective.ALL_REDUCE}  # what has no constants of its own goes as in a ring
    times = [CollectiveTime(k, n, 2e-4 + n / 1e8) for k in kinds for n in SIZES]
    constants = Constants(links={link.id: fit_link(times, link, CPU, 2)})
    for time in times:
        predicted = collective_s(time.kind, time.nbytes, pair, constants=constants)
        assert predicted == pytest.approx(time.seconds, rel=1e-6)


def test_noise_moves_it_little_and_nothing_becomes_negative() -> None:
    link = parse_cluster("2x1xcpu:eth-1g").groups[0].network_link
    times = [
        CollectiveTime(Collective.ALL_REDUCE, n, (n / 1e8) * (1.1 if i % 2 else 0.9))
        for i, n in enumerate(SIZES)
    ]
    protocol = fit_link(times, link, CPU, 2)["ring"].protocols["simple"]
    assert protocol.start_s >= 0
    assert protocol.efficiency * link.bandwidth_bytes_per_s == pytest.approx(1e8, rel=0.15)


def test_only_short_messages_leave_the_rate_at_what_was_seen() -> None:
    link = parse_cluster("2x1xcpu:eth-1g").groups[0].network_link
    times = [CollectiveTime(Collective.BROADCAST, n, 1e-3 - n * 1e-9) for n in (64.0, 128.0, 256.0)]
    protocol = fit_link(times, link, CPU, 2)["broadcast"].protocols["simple"]
    assert protocol.start_s == pytest.approx(1e-3, rel=0.01)
    assert protocol.efficiency > 0
