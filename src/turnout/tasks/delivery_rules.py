"""Which of the webhooks that are due are sent next. Pure.

Tenants are served by how few of theirs are under way, then by age; one has at most `OF_ONE` under way. So a receiver that
never answers holds up its own tenant's webhooks alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from turnout.tasks.task_rules import TenantId

AT_ONCE = 24
OF_ONE = 4


def next_deliveries(due: Sequence[tuple[str, TenantId]], under_way: Mapping[TenantId, int]) -> list[str]:
    """The entries to be sent now; `due` has the oldest first."""
    lines: dict[TenantId, list[str]] = {}
    for entry, tenant in due:
        lines.setdefault(tenant, []).append(entry)
    held, chosen = Counter(under_way), list[str]()
    while held.total() < AT_ONCE:
        free = [tenant for tenant, line in lines.items() if line and held[tenant] < OF_ONE]
        if not free:
            break
        tenant = min(free, key=lambda name: held[name])  # of equals, the one whose oldest entry is older
        chosen.append(lines[tenant].pop(0))
        held[tenant] += 1
    return chosen
