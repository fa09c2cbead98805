# type: ignore - the clients are called as their users call them; some are not installed here
"""LangChain, LiteLLM, Instructor, llm, standardwebhooks and boto3, in an environment of their own."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import instructor
import litellm
import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from standardwebhooks import Webhook

from tests.clients.calls import Calls, expect

URL, KEY = os.environ["TURNOUT_URL"], os.environ["TURNOUT_API_KEY"]
BASE = f"{URL}/v1"
HELLO = [{"role": "user", "content": "Say hello."}]
SMALL = {"prompt": "a red ball", "size": "64x64", "frames": 5, "steps": 2}


class Answer(BaseModel):
    """Whether it is so."""

    yes: bool


def post(path: str, body: dict[str, Any]) -> Any:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


langchain = Calls("LangChain")
model = ChatOpenAI(model="smollm2", base_url=BASE, api_key=KEY, max_tokens=40, max_retries=0)


@langchain("ChatOpenAI.invoke, batch")
def _() -> None:
    expect(model.invoke("Say hello.").content)
    expect(len(model.batch(["Say hello.", "Say hi."])) == 2)


@langchain("ChatOpenAI.stream")
def _() -> None:
    expect("".join(str(part.content) for part in model.stream("Say hello.")))


@langchain("with_structured_output(method=json_schema)")
def _() -> None:
    expect(isinstance(model.with_structured_output(Answer, method="json_schema").invoke("Is it so?"), Answer))


@langchain("bind_tools", refused="This model knows no tools")
def _() -> None:
    model.bind_tools([Answer]).invoke("Is it so?")


@langchain("ChatOpenAI(use_responses_api=True)")
def _() -> None:
    by_responses = ChatOpenAI(
        model="smollm2", base_url=BASE, api_key=KEY, use_responses_api=True, max_tokens=16
    )
    expect(by_responses.invoke("Say hello.").content)


@langchain("OpenAIEmbeddings(check_embedding_ctx_length=False)")
def _() -> None:
    made = OpenAIEmbeddings(model="embed", base_url=BASE, api_key=KEY, check_embedding_ctx_length=False)
    expect(len(made.embed_documents(["a", "b"])) == 2)


lite = Calls("LiteLLM")
asked = {"model": "openai/smollm2", "api_base": BASE, "api_key": KEY, "messages": HELLO, "max_tokens": 8}


@lite("completion")
def _() -> None:
    expect(litellm.completion(**asked).choices[0].message.content)


@lite("completion(stream=True)")
def _() -> None:
    expect(len(list(litellm.completion(**asked, stream=True))) > 1)


@lite("text_completion")
def _() -> None:
    made = litellm.text_completion(
        model="text-completion-openai/smollm2", prompt="One, two,", api_base=BASE, api_key=KEY, max_tokens=4
    )
    expect(made.choices[0].text)


@lite("embedding")
def _() -> None:
    made = litellm.embedding(
        model="openai/embed", input=["a"], api_base=BASE, api_key=KEY, encoding_format="float"
    )
    expect(len(made.data) == 1)


@lite("completion(tools=…)", refused="This model knows no tools")
def _() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    litellm.completion(**asked, tools=[tool])


structured = Calls("Instructor")


def made_by(mode: instructor.Mode) -> Answer:
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0), mode=mode)
    return client.chat.completions.create(
        model="smollm2", messages=HELLO, response_model=Answer, max_tokens=60, max_retries=1
    )


@structured("Mode.JSON_SCHEMA")
def _() -> None:
    expect(isinstance(made_by(instructor.Mode.JSON_SCHEMA), Answer))


@structured("Mode.TOOLS", refused="This model knows no tools")
def _() -> None:
    made_by(instructor.Mode.TOOLS)


llm = Calls("llm")
with tempfile.TemporaryDirectory() as home:
    declared = [{"model_id": "here", "model_name": "smollm2", "api_base": BASE, "api_key_name": "here"}]
    (Path(home) / "extra-openai-models.yaml").write_text(json.dumps(declared))

    def run_llm(*words: str) -> str:
        program = Path(sys.executable).with_name("llm")
        environ = {**os.environ, "LLM_USER_PATH": home}
        return subprocess.run(
            [program, *words], env=environ, check=True, capture_output=True, text=True, timeout=120
        ).stdout

    @llm("llm models")
    def _() -> None:
        expect("here" in run_llm("models"))

    @llm("llm -m MODEL PROMPT")
    def _() -> None:
        expect(run_llm("-m", "here", "--key", KEY, "-o", "max_tokens", "8", "Say hello.").strip())

    @llm("llm --no-stream")
    def _() -> None:
        expect(
            run_llm("-m", "here", "--key", KEY, "--no-stream", "-o", "max_tokens", "8", "Say hello.").strip()
        )


hooks = Calls("standardwebhooks")


@hooks("Webhook.verify, of a video that was rendered")
def _() -> None:
    got: list[tuple[dict[str, str], bytes]] = []
    came = threading.Event()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()
            came.set()

    secret = post("/v1/webhooks/secret", {"overlap_s": 0})["secret"]
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        post("/v1/videos", {**SMALL, "webhook_url": f"http://127.0.0.1:{server.server_port}/"})
        expect(came.wait(120), "no webhook")
        server.shutdown()
    told = Webhook(secret).verify(*reversed(got[0]))
    expect(told["type"] == "video.completed", told)
    with urllib.request.urlopen(told["data"]["url"], timeout=30) as file:
        expect(file.read()[4:8] == b"ftyp")


s3 = Calls("boto3")


@s3("get_object of a result in the bucket")
def _() -> None:
    bucket = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"], region_name="us-east-1")
    keys = [found["Key"] for found in bucket.list_objects_v2(Bucket="vid")["Contents"]]
    file = next(key for key in keys if key.endswith("video.mp4"))
    expect(bucket.get_object(Bucket="vid", Key=file)["Body"].read()[4:8] == b"ftyp")
