"""What is a person's: her tasks with their files and links, her conversations, keys and sessions; and how it is erased when she goes."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from turnout.errors import NotFound
from turnout.people.person_rules import Person, own_tenant
from turnout.stores import Stores
from turnout.tasks.task_removal import remove_task
from turnout.tasks.task_rules import Task
from turnout.telemetry.log import get_log
from turnout.tenants.caller import person_owner, tenant_owner

_AT_ONCE = 8


async def tasks_of(stores: Stores, person: Person) -> AsyncGenerator[Task]:
    """In a tenant of her own all tasks are hers, in another those that she asked for."""
    for tenant in person.tenants:
        async for task in stores.tasks.all_of(tenant):
            if tenant == own_tenant(person.id) or task.person == person.id:
                yield task


async def erase_stored(stores: Stores, person: Person, now: float) -> None:
    """Removes all that is stored of her. What her tenant used stays as figures, under a name that says nothing. May be repeated."""
    await disable(stores, person, now)
    few = asyncio.Semaphore(_AT_ONCE)

    async def remove(task: Task) -> None:
        async with few:
            try:
                await remove_task(stores, task, now)
            except NotFound:
                return  # it has just gone by itself

    async with asyncio.TaskGroup() as group:
        async for task in tasks_of(stores, person):
            group.create_task(remove(task), name=f"remove {task.id}")
    await stores.tenants.conversations.erase(person_owner(person.id))
    await stores.tenants.presets.forget(person_owner(person.id))
    if person.had_own_tenant:
        own = own_tenant(person.id)
        await stores.tenants.conversations.erase(tenant_owner(own))
        await stores.tenants.presets.forget(tenant_owner(own))
        await stores.tenants.budgets.remove(own)
        await stores.webhook_secrets.remove(own)
    await stores.tenants.people.remove(person, now)
    get_log().info("person removed", person=person.id)


async def erase_guests(stores: Stores, now: float) -> None:
    """Those whose time is over."""
    people = stores.tenants.people
    for person_id in await people.guests_over(now):
        person = await people.find(person_id)
        if person is None:
            await people.drop_guest(person_id, now)
        else:
            await erase_stored(stores, person, now)


async def disable(stores: Stores, person: Person, now: float) -> None:
    """First, so that nothing new comes while the old goes."""
    await stores.tenants.people.change(
        person.id, lambda one: replace(one, disabled_at=one.disabled_at or now)
    )
