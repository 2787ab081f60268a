"""Constants of links nobody measured for us: stated, not fitted.

Networks: NCCL's maintainers expect 46 to 48 of 50 GB/s per NDR port (nccl-tests issue 290); four
HDR ports per node reach 86 to 96 of 100 GB/s (nccl issue 1048, nccl-tests issue 119); one port of
two nodes takes 113 us for 2 MiB and 812 us for 32 MiB (nccl-tests issue 232), and two ranks on HDR
19 us for 8 bytes (nccl-tests issue 150). RoCE, EFA and TCP are taken to lose more.
Meshes: an Infinity Fabric of seven links gives each pair one of them. The eight V100 of a DGX-1
have six lanes each, one or two to four of the others: as many rings of the first n close as the
tables below say.
"""

from __future__ import annotations

from dataclasses import replace

from foretell.comm.constants import LinkConstants, Pattern, Protocol

SAME_AS = {
    "nvlink1": "nvlink2",
    "nvlink3/a100-40gb-pcie": "nvlink3/a100-80gb-pcie",
    "nvlink4-bridge": "nvlink4-bridge/h100-nvl",
    "pcie4/a100-40gb-pcie": "pcie4/a100-80gb-pcie",
    "pcie5/h100-pcie": "pcie5/h100-nvl",
}
# Share of the ports' bandwidth in rings; exchanges and pairs reach less.
_NETWORKS = {"infiniband": 0.95, "roce": 0.9, "efa": 0.8, "ethernet": 0.8, "loopback": 0.8}
_EXCHANGE = 0.85
# All of an exchange's messages are under way at once: a peer more costs less than a step.
_EXCHANGE_HOP = 0.25
_MESHES = {
    "xgmi4": {n: (n - 1) / 7 for n in range(2, 9)},
    "nvlink2": {n: rings / 6 for n, rings in enumerate((1, 2, 4, 2, 2, 4, 6), start=2)},
}


def stated(default: LinkConstants) -> dict[str, LinkConstants]:
    """Networks and meshes; what is fitted takes precedence."""
    found: dict[str, LinkConstants] = {kind: _network(e) for kind, e in _NETWORKS.items()}
    for key, reach in _MESHES.items():
        names = ("ring", "exchange", "pair")
        found[key] = {name: replace(default[name], reach=reach) for name in names}
    return found


def _network(efficiency: float) -> dict[str, Pattern]:
    def pattern(share: float, hop: float = 1.0) -> Pattern:
        return Pattern(
            protocols={
                "ll": Protocol(start_s=8e-6, hop=1.1 * hop, efficiency=0.25 * share),
                "ll128": Protocol(start_s=1.2e-5, hop=1.7 * hop, efficiency=0.6 * share),
                "simple": Protocol(start_s=3e-5, hop=2.8 * hop, efficiency=share),
            },
            blend=1.0,
        )

    low = efficiency * _EXCHANGE
    return {
        "ring": pattern(efficiency),
        "exchange": pattern(low, _EXCHANGE_HOP),
        "pair": pattern(low),
    }
