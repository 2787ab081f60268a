"""What collectives send, in closed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cluster import device
from foretell.comm import Collective, bus_bytes, carried_as
from foretell.errors import InputError

sizes = st.integers(1, 4096)
nbytes = st.floats(0, 1e12)


@given(nbytes, sizes)
def test_a_ring_all_reduce_sends_everything_twice_but_one_share(total: float, n: int) -> None:
    assert bus_bytes(Collective.ALL_REDUCE, total, n) == pytest.approx(2 * (n - 1) / n * total)


@given(nbytes, sizes)
def test_all_reduce_is_reduce_scatter_and_all_gather(total: float, n: int) -> None:
    parts = (Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
    assert bus_bytes(Collective.ALL_REDUCE, total, n) == pytest.approx(
        sum(bus_bytes(part, total, n) for part in parts)
    )


@given(nbytes, sizes)
def test_an_exchange_keeps_ones_own_share(total: float, n: int) -> None:
    assert bus_bytes(Collective.ALL_TO_ALL, total, n) == pytest.approx(total - total / n)


@given(nbytes, st.integers(2, 4096))
def test_broadcast_and_pairs_send_the_tensor(total: float, n: int) -> None:
    assert bus_bytes(Collective.BROADCAST, total, n) == total
    assert bus_bytes(Collective.SEND_RECV, total, n) == total


@pytest.mark.parametrize("kind", Collective)
def test_one_rank_sends_nothing(kind: Collective) -> None:
    assert bus_bytes(kind, 1e9, 1) == 0


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="size=0 of a group must be a whole number of 1 or more"):
        bus_bytes(Collective.ALL_REDUCE, 1.0, 0)
    with pytest.raises(InputError, match=r"nbytes=-1 of all_reduce must be 0 or more"):
        bus_bytes(Collective.ALL_REDUCE, -1, 2)
    with pytest.raises(InputError, match=r"nbytes=nan of broadcast must be 0 or more"):
        bus_bytes(Collective.BROADCAST, float("nan"), 2)


def test_gloo_reduce_scatters_by_all_reducing() -> None:
    assert carried_as(Collective.REDUCE_SCATTER, device("cpu")) is Collective.ALL_REDUCE
    assert carried_as(Collective.ALL_GATHER, device("cpu")) is Collective.ALL_GATHER
    for kind in Collective:
        assert carried_as(kind, device("a100-80gb")) is kind
