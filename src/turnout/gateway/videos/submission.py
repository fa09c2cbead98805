"""From a request to an accepted task: choose the model, settle the spec, store the first frame, submit.

Cheap checks come before anything is fetched or stored; what is refused leaves nothing behind.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import Depends, Request

from turnout.config import Config
from turnout.domain.errors import Conflict, InvalidRequest, Limited, NotFound, Unavailable
from turnout.domain.keys import Key
from turnout.domain.object_keys import input_image
from turnout.domain.tasks import Priority, Task, TaskId
from turnout.domain.video import ImageUse, RequestedVideo, VideoSpec, settle
from turnout.domain.video_model import Model
from turnout.gateway.bodies import Asked
from turnout.gateway.catalog import Catalog
from turnout.gateway.videos.images import fit, from_data_url
from turnout.observe import get_log
from turnout.ports import Blobs, Fetcher, Idempotency, TaskLog
from turnout.schemas.openai_json import RemixRequest, VideoRequest

_DECODERS = 2  # pictures unpacked at once; each may take max_image_pixels × 4 bytes, several times over
_MAX_IDEMPOTENCY_CHARS = 255
_MAX_URL_CHARS = 2048
_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Terms:
    """What the headers of a submission say."""

    priority: Priority
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class _Picture:
    """Where a first frame comes from, and the parameter to name when it is bad."""

    source: bytes | str
    param: str


async def read_terms(request: Request) -> Terms:
    named = request.headers.get("x-turnout-priority", Priority.NORMAL.value)
    if named not in set(Priority):
        raise InvalidRequest(
            "X-Turnout-Priority must be low, normal or high.", "X-Turnout-Priority", "invalid_value"
        )
    key = request.headers.get("idempotency-key")
    if key is not None and not (len(key) <= _MAX_IDEMPOTENCY_CHARS and _VISIBLE.fullmatch(key)):
        raise InvalidRequest(
            f"Idempotency-Key must be 1 to {_MAX_IDEMPOTENCY_CHARS} visible ASCII characters.",
            "Idempotency-Key",
            "invalid_value",
        )
    return Terms(Priority(named), key)


TermsDep = Annotated[Terms, Depends(read_terms)]


@dataclass(frozen=True, slots=True)
class Submissions:
    """`refusal` says why a model cannot be served now; None when it can, or may be soon. `fetcher` calls addresses that
    users name."""

    config: Config
    tasks: TaskLog
    blobs: Blobs
    fetcher: Fetcher
    catalog: Catalog
    refusal: Callable[[str], str | None]
    now: Callable[[], float]
    new_id: Callable[[], str]
    new_seed: Callable[[], int]
    _decoders: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_DECODERS), init=False)

    async def create(self, asked: Asked, key: Key, terms: Terms) -> Task:
        request = asked.request
        picture = _picture(asked)
        task_id = TaskId(f"video_{self.new_id()}")
        wish = _wish(request, input_image(task_id) if picture else None)
        model, spec = await self._choose(request.model, wish, self.new_seed())
        await self._check_webhook(request.webhook_url)
        frame = None if picture is None else await self._frame(picture, spec)
        task = self._task(task_id, key, model, spec, terms, request.webhook_url)
        return await self._submit(task, frame, _idempotency(terms, "create", _canonical(asked)))

    async def remix(self, source: Task, request: RemixRequest, key: Key, terms: Terms) -> Task:
        """The same spec and seed with another prompt."""
        task_id = TaskId(f"video_{self.new_id()}")
        old = source.spec
        image = input_image(task_id) if old.image else None
        wish = RequestedVideo(
            prompt=request.prompt,
            negative_prompt=old.negative_prompt,
            size=f"{old.width}x{old.height}",
            frames=old.frames,
            fps=old.fps,
            steps=old.steps,
            guidance=old.guidance,
            shift=old.shift,
            seed=old.seed,
            image=image,
        )
        model, spec = await self._choose(source.model, wish, old.seed)
        await self._check_webhook(request.webhook_url)
        frame = await self.blobs.get(old.image) if old.image else None
        task = self._task(task_id, key, model, spec, terms, request.webhook_url)
        words = f"{source.id}\n{request.model_dump_json(exclude_none=True)}".encode()
        return await self._submit(
            replace(task, remixed_from=source.id), frame, _idempotency(terms, "remix", words)
        )

    async def _choose(self, name: str | None, wish: RequestedVideo, seed: int) -> tuple[Model, VideoSpec]:
        """Raises NotFound, InvalidRequest, and Unavailable for a model that no machine can run now."""
        served = await self.catalog.find(name) if name is not None else None
        if served is not None and served.video is None:
            raise InvalidRequest(f"{name} does not make videos.", "model", "wrong_kind")
        model, spec = _choose(await self.catalog.videos(), name, wish, seed)
        refusal = self.refusal(model.name)
        if refusal is not None:
            raise Unavailable(
                f"{model.name} cannot be served: {refusal}", "model", "model_unavailable", retry_after_s=10
            )
        return model, spec

    def _task(
        self, task_id: TaskId, key: Key, model: Model, spec: VideoSpec, terms: Terms, webhook_url: str | None
    ) -> Task:
        return Task(
            id=task_id,
            tenant=key.tenant,
            model=model.name,
            spec=spec,
            created_at=self.now(),
            priority=terms.priority,
            max_attempts=self.config.max_attempts,
            webhook_url=webhook_url,
        )

    async def _submit(self, task: Task, frame: bytes | None, idempotency: Idempotency | None) -> Task:
        kept = input_image(task.id)
        if frame is not None:
            await self.blobs.put(kept, frame, "image/png")
        try:
            accepted = await self.tasks.submit(task, self.config.limits, idempotency)
        except (Conflict, Limited, NotFound):
            # Only a clear refusal: when Redis did not answer, the task may well have been accepted.
            if frame is not None:
                await self.blobs.delete([kept])
            raise
        if accepted.id != task.id:
            if frame is not None:
                await self.blobs.delete([kept])
            return accepted
        get_log().info("task submitted", task=task.id, tenant=task.tenant, model=task.model)
        return accepted

    async def _check_webhook(self, url: str | None) -> None:
        if url is not None:
            await self._visit(url, "webhook_url", None)

    async def _frame(self, picture: _Picture, spec: VideoSpec) -> bytes:
        config = self.config
        source, param = picture.source, picture.param
        if isinstance(source, str):
            if source.startswith("data:"):
                source = from_data_url(source, param)
            else:
                source = await self._visit(source, param, config.max_body_bytes)
        async with self._decoders:
            return await asyncio.to_thread(
                fit, source, spec.width, spec.height, config.max_image_pixels, param
            )

    async def _visit(self, url: str, param: str, max_bytes: int | None) -> bytes:
        """The bytes at a URL that a caller gave; none when it is only to be checked."""
        if len(url) > _MAX_URL_CHARS:
            raise InvalidRequest(f"{param} is over {_MAX_URL_CHARS} characters.", param, "string_too_long")
        try:
            if max_bytes is None:
                await self.fetcher.check(url)
                return b""
            return await self.fetcher.get(url, max_bytes)
        except InvalidRequest as err:
            err.param = param
            raise


def _picture(asked: Asked) -> _Picture | None:
    request = asked.request
    given = [
        _Picture(source, param)
        for source, param in (
            (asked.upload, "input_reference"),
            (request.input_reference and request.input_reference.image_url, "input_reference.image_url"),
            (request.image_url, "image_url"),
        )
        if source is not None
    ]
    if len(given) > 1:
        raise InvalidRequest("Give one image: input_reference or image_url.", given[1].param, "invalid_value")
    return given[0] if given else None


def _wish(request: VideoRequest, image: str | None) -> RequestedVideo:
    return RequestedVideo(
        prompt=request.prompt,
        negative_prompt=request.negative_prompt,
        size=request.size,
        seconds=request.seconds,
        frames=request.frames,
        fps=request.fps,
        steps=request.steps,
        guidance=request.guidance,
        shift=request.shift,
        seed=request.seed,
        image=image,
    )


def _choose(
    models: Sequence[Model], name: str | None, wish: RequestedVideo, fallback_seed: int
) -> tuple[Model, VideoSpec]:
    """The named model, or the first that can do it; raises what the likeliest one says when none can."""
    if name is not None:
        model = next((m for m in models if m.name == name), None)
        if model is None:
            raise NotFound(f"There is no model {name[:100]}.", "model", "model_not_found")
        return model, settle(wish, model.rules, ulysses=model.ulysses, seed=fallback_seed)
    unfit = ImageUse.REQUIRED if wish.image is None else ImageUse.NONE
    likely = [m for m in models if m.rules.image is not unfit] or list(models)
    refusal: InvalidRequest | None = None
    for model in likely:
        try:
            return model, settle(wish, model.rules, ulysses=model.ulysses, seed=fallback_seed)
        except InvalidRequest as err:
            refusal = refusal or err
    raise refusal or NotFound("No video model is registered.", "model", "model_not_found")


def _canonical(asked: Asked) -> bytes:
    """The same for a form and for JSON that ask for the same."""
    words = asked.request.model_dump_json(exclude_none=True).encode()
    return words if asked.upload is None else words + hashlib.sha256(asked.upload).digest()


def _idempotency(terms: Terms, what: str, canonical: bytes) -> Idempotency | None:
    if terms.idempotency_key is None:
        return None
    digest = hashlib.sha256(what.encode() + b"\n" + canonical).hexdigest()
    return Idempotency(terms.idempotency_key, digest)
