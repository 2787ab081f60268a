"""A measured step as a record, from options as a forecast takes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from foretell.cluster import Cluster, parse_cluster
from foretell.data.record import Record

OWN_MODELS = "foretell.data.importers.models"
"""Where a reference finds models that importers bring themselves."""


def step_record(options: Mapping[str, Any], **fields: Any) -> Record:
    """A record; what it says of the cluster is read off the cluster's text unless given."""
    rest = dict(options)
    cluster = rest.pop("cluster")
    where = {**_where(cluster), **fields}
    return Record(
        model=rest.pop("model"), cluster=cluster, batch=rest.pop("batch"), options=rest, **where
    )


def _where(cluster: str) -> dict[str, Any]:
    parsed = _parsed(cluster)
    return {
        "device": parsed.groups[0].device.id,
        "devices": parsed.total_devices,
        "nodes": sum(group.count for group in parsed.groups),
    }


@functools.lru_cache(maxsize=256)
def _parsed(cluster: str) -> Cluster:
    return parse_cluster(cluster)
