"""Settings of gangs: how long their ranks may be silent, and how often they save what they have."""

from dataclasses import dataclass

from turnout.setting_types import Count, Seconds, SomeSeconds


@dataclass(frozen=True, slots=True)
class GangSettings:
    stall_s: Seconds = 20.0
    step_timeout_s: Seconds = 600.0
    meeting_timeout_s: Seconds = 300.0
    collective_timeout_s: Seconds = 1800.0
    drain_s: SomeSeconds = 30.0
    checkpoint_steps: Count = 4
    checkpoint_s: SomeSeconds = 20.0
    preview_steps: Count = 4
