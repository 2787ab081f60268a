"""Who starts when, one policy per file, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foretell.errors import UnknownNameError
from foretell.schedule.job import Policy
from foretell.schedule.policies.a_srpt import ASrpt
from foretell.schedule.policies.a_srpt_strict import StrictASrpt
from foretell.schedule.policies.a_srpt_whole import WholeASrpt
from foretell.schedule.policies.easy import Easy
from foretell.schedule.policies.fair import MaxMinFair
from foretell.schedule.policies.fifo import Fifo
from foretell.schedule.policies.las import LeastAttained
from foretell.schedule.policies.shortest import ShortestJob, SmallestWorkload
from foretell.schedule.policies.srtf import ShortestRemaining
from foretell.schedule.policies.work_conserving import (
    ConservingDuration,
    ConservingSubmit,
    ConservingWorkload,
)

POLICIES: Mapping[str, Callable[[], Policy]] = {
    policy.name: policy
    for policy in (
        ASrpt,
        WholeASrpt,
        StrictASrpt,
        Fifo,
        Easy,
        ShortestRemaining,
        ShortestJob,
        SmallestWorkload,
        ConservingDuration,
        ConservingWorkload,
        ConservingSubmit,
        LeastAttained,
        MaxMinFair,
    )
}
"""All that come with the package."""


def policy_named(name: str) -> Policy:
    """A new policy."""
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES, f"use one of {', '.join(POLICIES)}")
    return POLICIES[name]()
