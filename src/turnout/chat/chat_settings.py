"""Settings of chat: what each tenant may ask for, over all gateways, and how many conversations are kept for a person."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from turnout.chat.quota_rules import ChatLimits
from turnout.setting_types import Limit


@dataclass(frozen=True, slots=True)
class ChatSettings:
    limit_chat_requests_per_minute: Limit = 0
    limit_chat_tokens_per_minute: Limit = 0
    limit_chat_concurrency: Limit = 500
    keep_conversations: Annotated[int, Field(ge=0, le=1000)] = 200

    @property
    def limits(self) -> ChatLimits:
        return ChatLimits(
            self.limit_chat_requests_per_minute,
            self.limit_chat_tokens_per_minute,
            self.limit_chat_concurrency,
        )
