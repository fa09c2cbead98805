"""Conversations over HTTP: kept for the person who has them, found, renamed, deleted. Another's do not exist."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from turnout.chat.conversation_json import (
    ID,
    ConversationDeleted,
    ConversationList,
    ConversationListed,
    ConversationShown,
    KeepConversation,
    RenameConversation,
    Said,
    conversation_shown,
    listed,
)
from turnout.chat.conversation_rules import MAX_CONVERSATION_BYTES, KeptConversation, check_tree, room_of
from turnout.errors import Conflict
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import owner_of

router = APIRouter(tags=["conversations"], responses=documented(401, 403, 404, 500, 503))
_Id = Annotated[str, Path(pattern=ID)]


@router.get("/v1/conversations", responses=documented(400), summary="List conversations")
async def index(
    caller: UserDep,
    gateway: GatewayDep,
    search: Annotated[str, Query(max_length=200, description="Words in a title or a message.")] = "",
) -> ConversationList:
    """Newest first."""
    store, owner = gateway.stores.tenants.conversations, owner_of(caller)
    found = await (store.search(owner, search) if search.strip() else store.of(owner))
    room = room_of(caller.guest, gateway.chat.keep_conversations)
    return ConversationList(data=[listed(one) for one in found], most=room.most)


@router.get(
    "/v1/conversations/{conversation_id}", responses=documented(400), summary="Look at a conversation"
)
async def show(conversation_id: _Id, caller: UserDep, gateway: GatewayDep) -> ConversationShown:
    store, owner = gateway.stores.tenants.conversations, owner_of(caller)
    one = await store.find(owner, conversation_id)
    return conversation_shown(one, await store.read(owner, one))


@router.put(
    "/v1/conversations/{conversation_id}",
    responses=documented(400, 409, 413, 415),
    openapi_extra=json_body(KeepConversation),
    summary="Keep a conversation",
)
async def keep(
    conversation_id: _Id, request: Request, caller: UserDep, gateway: GatewayDep
) -> ConversationListed:
    """The whole of it, in place of the revision before."""
    body = await read_json(request, KeepConversation, MAX_CONVERSATION_BYTES)
    room = room_of(caller.guest, gateway.chat.keep_conversations)
    if room.most == 0:
        raise Conflict("Conversations are not kept here.", code="not_kept")
    check_tree(((one.id, one.parent) for one in body.messages), body.leaf)
    now = gateway.now()
    one = KeptConversation(conversation_id, body.revision + 1, body.title, body.model, now, now, 0, "")
    said = body.model_dump_json(include=set(Said.model_fields)).encode()
    words = "\n".join([body.title, body.system, *(message.text for message in body.messages)])
    return listed(await gateway.stores.tenants.conversations.keep(owner_of(caller), one, said, words, room))


@router.patch(
    "/v1/conversations/{conversation_id}",
    responses=documented(400, 409, 413, 415),
    openapi_extra=json_body(RenameConversation),
    summary="Rename a conversation",
)
async def rename(
    conversation_id: _Id, request: Request, caller: UserDep, gateway: GatewayDep
) -> ConversationListed:
    body, store, owner = (
        await read_json(request, RenameConversation),
        gateway.stores.tenants.conversations,
        owner_of(caller),
    )
    return listed(await store.rename(owner, await store.find(owner, conversation_id), body.title))


@router.delete(
    "/v1/conversations/{conversation_id}", responses=documented(400), summary="Delete a conversation"
)
async def delete(conversation_id: _Id, caller: UserDep, gateway: GatewayDep) -> ConversationDeleted:
    await gateway.stores.tenants.conversations.remove(owner_of(caller), conversation_id)
    return ConversationDeleted(id=conversation_id)
