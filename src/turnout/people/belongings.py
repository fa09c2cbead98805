"""What is a person's: her tasks with their files and links, her keys and sessions. Ends it when she is disabled, and erases it
when she goes."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from turnout.errors import NotFound
from turnout.gateway.gateway import Gateway
from turnout.people.person_rules import Person
from turnout.tasks.task_removal import cancel_task, remove_task
from turnout.tasks.task_rules import Task
from turnout.telemetry.log import get_log

_AT_ONCE = 8


async def tasks_of(gateway: Gateway, person: Person) -> AsyncGenerator[Task]:
    """In a tenant of her own all tasks are hers, in another those that she asked for."""
    async for task in gateway.stores.tasks.all_of(person.tenant):
        if person.own_tenant or task.person == person.id:
            yield task


async def end_open(gateway: Gateway, person: Person) -> None:
    """Ends what a person has open who was disabled or removed: here at once, at other gateways within a second or two; and
    her tasks that have not ended."""
    await gateway.revocations.revoked(person.id)
    async for task in tasks_of(gateway, person):
        if not task.ended:
            await cancel_task(gateway.stores, task, gateway.now())


async def erase(gateway: Gateway, person: Person) -> None:
    """Removes all of it, and her. What her tenant used stays as figures, under a name that says nothing. May be repeated."""
    stores, now = gateway.stores, gateway.now()
    # First, so that nothing new comes while the old goes.
    await stores.tenants.people.change(person.id, lambda one: replace(one, disabled_at=now))
    await end_open(gateway, person)
    few = asyncio.Semaphore(_AT_ONCE)

    async def remove(task: Task) -> None:
        async with few:
            try:
                await remove_task(stores, task, now)
            except NotFound:
                return  # it has just gone by itself

    async with asyncio.TaskGroup() as group:
        async for task in tasks_of(gateway, person):
            group.create_task(remove(task), name=f"remove {task.id}")
    if person.own_tenant:
        await stores.tenants.budgets.remove(person.tenant)
        await stores.webhook_secrets.remove(person.tenant)
    await stores.tenants.people.remove(person)
    get_log().info("person removed", person=person.id)
