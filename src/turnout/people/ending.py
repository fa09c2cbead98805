"""Ends what a person has open when she is disabled or removed: here at once, at other gateways within a second or two."""

from turnout.gateway.gateway import Gateway
from turnout.people.belongings import disable, erase_stored, tasks_of
from turnout.people.person_rules import Person
from turnout.tasks.task_removal import cancel_task


async def end_open(gateway: Gateway, person: Person) -> None:
    """Ends what a person has open who was disabled: here at once, at other gateways within a second or two; and her tasks that
    have not ended."""
    await gateway.revocations.revoked(person.id)
    async for task in tasks_of(gateway.stores, person):
        if not task.ended:
            await cancel_task(gateway.stores, task, gateway.now())


async def erase(gateway: Gateway, person: Person) -> None:
    """Removes all of it, and her: what she has open here ends at once."""
    await disable(gateway.stores, person, gateway.now())
    await gateway.revocations.revoked(person.id)
    await erase_stored(gateway.stores, person, gateway.now())
