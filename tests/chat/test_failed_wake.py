"""A model that does not become ready, as the OpenAI client sees it in a stream that was kept open meanwhile."""

from dataclasses import replace
from pathlib import Path

import openai
import pytest
from tests import gateways
from tests.conftest import Stores
from tests.gateways import chatting

from turnout.gateway.gateway_settings import GatewaySettings
from turnout.relay import RelaySettings, UpstreamLimits
from turnout.run.run_gateway import relay_settings


async def test_a_model_that_is_not_ready_in_time_is_an_error_of_the_stream(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(settings: GatewaySettings) -> RelaySettings:
        return replace(relay_settings(settings), upstream=UpstreamLimits(comment_after_s=0.05))

    monkeypatch.setattr(gateways, "relay_settings", impatient)
    async with chatting(stores, tmp_path) as chat:
        chat.gateway.inside.chat.switchboard._patience_s = 0.5
        async with openai.AsyncOpenAI(
            base_url=f"{chat.base}/v1", api_key=chat.gateway.token, max_retries=0
        ) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            assert stream.response.status_code == 200
            with pytest.raises(openai.APIError) as caught:
                async for _ in stream:
                    pass
            assert (caught.value.code, caught.value.message) == (
                "model_not_ready",
                "m was not ready within 0.5 s.",
            )
            await stream.close()
        assert chat.at_rest
