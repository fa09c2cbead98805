# type: ignore - the clients are called as their users call them; some are not installed here
"""OpenAI's Python client."""

import base64
import io
import os

import httpx
import openai
from PIL import Image
from pydantic import BaseModel

from tests.clients.calls import Calls, expect

URL, KEY = os.environ["TURNOUT_URL"], os.environ["TURNOUT_API_KEY"]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120)
calls = Calls("openai (Python)")
HELLO = [{"role": "user", "content": "Say hello."}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SMALL = {"size": "64x64", "extra_body": {"frames": 5, "steps": 2, "seed": 1}}
chat = {"model": "smollm2", "messages": HELLO, "max_tokens": 8}


class Answer(BaseModel):
    yes: bool


@calls("models.list, models.retrieve")
def _() -> None:
    expect("smollm2" in [m.id for m in client.models.list()])
    expect(client.models.retrieve("smollm2").id == "smollm2")


@calls("chat.completions.create")
def _() -> None:
    expect(client.chat.completions.create(**chat).choices[0].message.content)


@calls("chat.completions.create(stream=True)")
def _() -> None:
    told = [
        c.choices[0].delta.content for c in client.chat.completions.create(**chat, stream=True) if c.choices
    ]
    expect("".join(filter(None, told)))


@calls("chat.completions.create(stream=True, include_usage)")
def _() -> None:
    stream = client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True})
    expect([c.usage for c in stream][-1])


@calls("chat.completions.create(response_format=json_schema)")
def _() -> None:
    asked = {**chat, "max_tokens": 40, "temperature": 0}
    expect(client.chat.completions.parse(**asked, response_format=Answer).choices[0].message.parsed)


@calls("chat.completions.create(tools=…)", refused="This model knows no tools")
def _() -> None:
    client.chat.completions.create(**chat, tools=[TOOL])


@calls("chat.completions.create(n=2)")
def _() -> None:
    expect(len(client.chat.completions.create(**chat, n=2).choices) == 2)


def asking_of(model: str, colour: str) -> dict:
    paper = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(paper, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(paper.getvalue()).decode()}"
    parts = [{"type": "text", "text": "Which colour?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"model": model, "messages": [{"role": "user", "content": parts}]}


@calls("chat.completions.create with a picture, of a model that sees")
def _() -> None:
    expect(client.chat.completions.create(**asking_of("sees", "blue")).choices[0].message.content == "blue")


@calls("chat.completions.create with a picture, of one that does not", refused="does not see pictures")
def _() -> None:
    # A 400: with the client's own retries it is one request.
    client.with_options(max_retries=2).chat.completions.create(**asking_of("smollm2", "red"))


@calls("completions.create")
def _() -> None:
    expect(client.completions.create(model="smollm2", prompt="One, two,", max_tokens=4).choices[0].text)


@calls("responses.create")
def _() -> None:
    expect(client.responses.create(model="smollm2", input="Say hello.", max_output_tokens=8).output_text)


@calls("responses.create(stream=True)")
def _() -> None:
    stream = client.responses.create(model="smollm2", input="Say hello.", max_output_tokens=8, stream=True)
    expect([e.type for e in stream][-1] == "response.completed")


@calls("embeddings.create")
def _() -> None:
    expect(len(client.embeddings.create(model="embed", input=["a", "b"]).data) == 2)


@calls("embeddings.create, of a chat model", refused="does not support embeddings")
def _() -> None:
    client.embeddings.create(model="smollm2", input="a")


@calls("videos.create_and_poll, retrieve, list")
def _() -> None:
    video = client.videos.create_and_poll(prompt="a red ball", model="wan-tiny-t2v", **SMALL)
    expect(video.status == "completed", video)
    expect(client.videos.retrieve(video.id).progress == 100)
    expect(video.id in [v.id for v in client.videos.list()])


@calls("videos.download_content, remix, delete")
def _() -> None:
    video = next(iter(client.videos.list()))
    expect(client.videos.download_content(video.id).read()[4:8] == b"ftyp")
    remix = client.videos.remix(video.id, prompt="a blue ball")
    expect(client.videos.delete(remix.id).deleted)


@calls("videos.create(seconds='4')")
def _() -> None:
    video = client.videos.create(prompt="a red ball", seconds="4", size="64x64", extra_body={"steps": 1})
    expect(video.seconds == "4", video)
    client.videos.delete(video.id)


@calls("videos.create(size='1280x720'), of a tiny model", refused="is over this model's")
def _() -> None:
    client.videos.create(prompt="a red ball", model="wan-tiny-t2v", size="1280x720")


@calls("an unknown model", refused="NotFoundError")
def _() -> None:
    client.chat.completions.create(**{**chat, "model": "nope"})


@calls("a wrong key", refused="AuthenticationError")
def _() -> None:
    client.with_options(api_key="tk-no.key").models.list()


@calls("errors have param and code")
def _() -> None:
    try:
        client.videos.create(prompt="")
    except openai.BadRequestError as err:
        expect((err.param, err.code) == ("prompt", "invalid_value"), err.body)


@calls("images.generate, as a URL and as b64_json")
def _() -> None:
    made = client.images.generate(prompt="a red square", model="wan-tiny-t2v", n=2, extra_body={"steps": 4})
    pictures = [base64.b64decode(one.b64_json or "") for one in made.data or []]
    expect(len(pictures) == 2 and all(one.startswith(b"\x89PNG") for one in pictures), made)
    url = (made.data or [])[0].url or ""
    expect(httpx.get(url, follow_redirects=True).content == pictures[0], url)


@calls("files.list, batches, fine_tuning, audio, moderations", refused="There is no GET /v1/files")
def _() -> None:
    client.files.list()
