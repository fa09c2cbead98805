"""From a request to an accepted task: choose the model, settle the spec, store the first frame, submit.

Checks and the tenant's limits come before anything is fetched, decoded or stored; what is refused leaves nothing behind.
"""

import hashlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial

from turnout.errors import Conflict, InvalidRequest, Limited, NotFound, OverBudget, Unauthorized, no_such
from turnout.fleet.catalog import Catalog
from turnout.fleet.model_rules import Model
from turnout.fleet.route_rules import cannot_serve
from turnout.fleet.version_rules import choose_version, versions_of
from turnout.store.object_store import Blobs
from turnout.store.outbound import Outbound
from turnout.tasks.content_check import ContentCheck
from turnout.tasks.data_urls import from_data_url
from turnout.tasks.image_fitting import FrameSize
from turnout.tasks.image_pool import ImagePool
from turnout.tasks.object_keys import input_image
from turnout.tasks.prompt_rewriter import PromptRewriter, Rewriting
from turnout.tasks.robot_rules import called_url
from turnout.tasks.submission_headers import SubmissionHeaders
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Idempotency, Priority, Task, TaskId, TenantId
from turnout.tasks.task_settings import TaskSettings
from turnout.tasks.video_body import VideoBody
from turnout.tasks.video_json import RemixRequest, VideoRequest
from turnout.tasks.video_rules import ImageUse, RequestedVideo, VideoSpec, settle
from turnout.telemetry.log import get_log
from turnout.tenants.budget_checks import BudgetChecks
from turnout.tenants.caller import Caller, refuse_guest, right_ended
from turnout.tenants.open_connections import OpenConnections
from turnout.tenants.turn_rules import Turn

_MAX_URL_CHARS = 2048
_SAME = tuple(one.name for one in fields(RequestedVideo) if one.name != "image")


@dataclass(frozen=True, slots=True)
class _ImageSource:
    """Where a first frame comes from, and the parameter to name when it is bad."""

    source: bytes | str
    param: str


@dataclass(frozen=True, slots=True)
class Submissions:
    """`refusal` says why a model cannot be served now; None when it can, or may be soon. `fetcher` calls addresses that
    users name. `callers` are those who wait. `check` is of what is asked for, and `rewriter` makes prompts better, if the operator has them."""

    settings: TaskSettings
    max_body_bytes: int
    tasks: TaskLog
    blobs: Blobs
    images: ImagePool
    fetcher: Outbound
    catalog: Catalog
    refusal: Callable[[str], str | None]
    budgets: BudgetChecks
    callers: OpenConnections[Caller]
    check: ContentCheck | None
    rewriter: PromptRewriter | None
    now: Callable[[], float]
    new_id: Callable[[], str]
    new_seed: Callable[[], int]

    async def create(
        self,
        body: VideoBody,
        caller: Caller,
        headers: SubmissionHeaders,
        rewritten: Rewriting | None = None,
        task_id: TaskId | None = None,
    ) -> tuple[Task, int | None]:
        """The task, and how many are served before it. `rewritten`: what became of the prompt, if that is known. `task_id`: of a new one."""
        request = body.request
        if request.enhance and self.rewriter is None:
            raise InvalidRequest("This service has no model that rewrites prompts.", "enhance", "unsupported")
        image = _image_source(body)
        task_id = task_id or self.new_task_id()
        requested = _requested(request, input_image(task_id) if image else None)
        seed = self.new_seed() if request.seed is None else request.seed
        asker = f"{caller.tenant}\n{request.batch or task_id}"
        model, spec = await self._choose(request.model, requested, seed, asker)
        task = self._task(task_id, caller, model, spec, headers, request.webhook_url)
        task = replace(task, name=request.task_id, batch=request.batch)
        idempotency = _idempotency(headers, "create", lambda: _canonical(body), request.task_id)
        frame = None if image is None else partial(self._frame, image, spec, caller.turn)
        rewrite = partial(self._rewrite, model, headers, rewritten) if request.enhance else None
        return await self._accept(task, caller, frame, idempotency, rewrite)

    def new_task_id(self) -> TaskId:
        return TaskId(f"video_{self.new_id()}")

    async def spec(self, model: str, request: VideoRequest, *, image: bool) -> VideoSpec:
        """What a task of the model would be, with a first frame or without one. Raises as `create`."""
        known = await self.catalog.find(model)
        image = image or (
            known is not None and known.video is not None and known.video.rules.image is ImageUse.REQUIRED
        )
        return (await self._choose(model, _requested(request, "image" if image else None), 0))[1]

    async def remix(
        self, source: Task, request: RemixRequest, caller: Caller, headers: SubmissionHeaders
    ) -> tuple[Task, int | None]:
        """The same spec, with another prompt or seed."""
        task_id = self.new_task_id()
        old = source.spec
        seed = old.seed if request.seed is None else request.seed
        image = input_image(task_id) if old.image else None
        requested = RequestedVideo(
            prompt=old.prompt if request.prompt is None else request.prompt,
            negative_prompt=old.negative_prompt,
            size=f"{old.width}x{old.height}",
            frames=old.frames,
            fps=old.fps,
            steps=old.steps,
            guidance=old.guidance,
            shift=old.shift,
            guided_share=old.guided_share,
            step_cache=old.step_cache,
            fp8_attention=old.fp8_attention,
            loras=[f"{use.name}:{use.strength!r}" for use in old.loras],
            seed=seed,
            image=image,
        )
        model, spec = await self._choose(source.model, requested, seed)
        frame = partial(self.blobs.get, old.image) if old.image else None
        task = self._task(task_id, caller, model, spec, headers, request.webhook_url)
        original = source.original_prompt if request.prompt is None else None
        task = replace(task, remixed_from=source.id, original_prompt=original)
        idempotency = _idempotency(
            headers, "remix", lambda: f"{source.id}\n{request.model_dump_json(exclude_none=True)}".encode()
        )
        return await self._accept(task, caller, frame, idempotency)

    async def _choose(
        self, name: str | None, requested: RequestedVideo, seed: int, asker: str | None = None
    ) -> tuple[Model, VideoSpec]:
        """With an `asker`, a version of the model may be the one. Raises NotFound, InvalidRequest, and Unavailable for a model that no machine can run now."""
        named = await self.catalog.find(name) if name is not None else None
        if named is not None and named.video is None:
            raise InvalidRequest(f"{name} does not make videos.", "model", "wrong_kind")
        model, spec = _choose(await self.catalog.videos(), name, requested, seed)
        if asker is not None:
            model, spec = await self._version(model, asker, requested, seed) or (model, spec)
        refusal = self.refusal(model.name)
        if refusal is not None:
            raise cannot_serve(model.name, refusal)
        return model, spec

    async def _version(
        self, model: Model, asker: str, requested: RequestedVideo, seed: int
    ) -> tuple[Model, VideoSpec] | None:
        """The version of the model that renders this; None if the model itself does, also where the version could not."""
        models = await self.catalog.all()
        versions = versions_of(model.name, models.values())
        name = choose_version(model.name, versions, asker.encode(), lambda name: self.refusal(name) is None)
        if name == model.name:
            return None
        try:
            return models[name], _settle(models[name], requested, seed)
        except InvalidRequest:
            return None

    def _task(
        self,
        task_id: TaskId,
        caller: Caller,
        model: Model,
        spec: VideoSpec,
        headers: SubmissionHeaders,
        webhook_url: str | None,
    ) -> Task:
        return Task(
            id=task_id,
            tenant=caller.tenant,
            model=model.name,
            spec=spec,
            created_at=self.now(),
            priority=Priority.GUEST if caller.guest else headers.priority,
            max_attempts=self.settings.max_attempts,
            webhook_url=webhook_url,
            traceparent=headers.traceparent,
            person=caller.person,
        )

    async def _accept(
        self,
        task: Task,
        caller: Caller,
        read_frame: Callable[[], Awaitable[bytes]] | None,
        idempotency: Idempotency | None,
        rewrite: Callable[[Task], Awaitable[Task]] | None = None,
    ) -> tuple[Task, int | None]:
        if task.webhook_url is not None:
            refuse_guest(caller)
        await self._check_budget(task.tenant, idempotency)
        calls = read_frame is not None or task.webhook_url is not None or rewrite is not None
        if self.check is not None:
            self.check.refuse_words(task)
            calls = calls or self.check.calls
        if not calls:
            return await self._submit(task, caller, None, idempotency, admitted=False)
        known = await self.tasks.admit(task, self.settings.limits, idempotency, caller.allowances)
        if known is not None:
            return known, await self.tasks.position(known)
        async with self.callers.within(caller, right_ended()):  # it may take a minute
            if self.check is not None:
                await self.check.refuse_prompt(task)
            await self.check_webhook(task.webhook_url, caller.turn)
            if rewrite is not None:
                task = await rewrite(task)
            frame = None if read_frame is None else await read_frame()
        return await self._submit(task, caller, frame, idempotency, admitted=True)

    async def _rewrite(
        self, model: Model, headers: SubmissionHeaders, known: Rewriting | None, task: Task
    ) -> Task:
        """The task with the prompt that a chat model made of its own, which is checked as that was; or with why there is none."""
        if known is None and self.rewriter is not None:
            spec = task.spec
            image, still = spec.image is not None, spec.frames == 1
            known = await self.rewriter.try_rewrite(spec.prompt, model, headers.all, image=image, still=still)
        if known is None or known.prompt is None:
            return replace(task, rewrite_failure=None if known is None else known.failure)
        original = task.spec.prompt
        task = replace(task, spec=replace(task.spec, prompt=known.prompt), original_prompt=original)
        if self.check is not None:
            await self.check.refuse_prompt(task)
        return task

    async def _submit(
        self,
        task: Task,
        caller: Caller,
        frame: bytes | None,
        idempotency: Idempotency | None,
        *,
        admitted: bool,
    ) -> tuple[Task, int | None]:
        kept = input_image(task.id)
        if frame is not None:
            await self.blobs.put(kept, frame, "image/png")
        try:
            accepted, position = await self.tasks.submit_with_position(
                task, self.settings.limits, idempotency, caller.allowances, admitted=admitted
            )
        except (Conflict, Limited, NotFound, Unauthorized):
            # Only a clear refusal: when Redis did not answer, the task may well have been accepted.
            if frame is not None:
                await self.blobs.delete([kept])
            raise
        if accepted.id != task.id:
            if frame is not None:
                await self.blobs.delete([kept])
            return accepted, position
        get_log().info("task submitted", task=task.id, tenant=task.tenant, model=task.model)
        return accepted, position

    async def _check_budget(self, tenant: TenantId, idempotency: Idempotency | None) -> None:
        """Raises OverBudget, but not for what was accepted before."""
        try:
            self.budgets.refuse_if_spent(tenant)
        except OverBudget:
            if idempotency is None or await self.tasks.named(tenant, idempotency.key) is None:
                raise

    async def check_webhook(self, url: str | None, whose: Turn, param: str = "webhook_url") -> None:
        if url is not None:
            _refuse_long(param, url)
            with _blaming(param):
                await self.fetcher.check(called_url(url), whose)

    async def _frame(self, image: _ImageSource, spec: VideoSpec, whose: Turn) -> bytes:
        source, param = image.source, image.param
        size = FrameSize(spec.width, spec.height, self.settings.max_image_pixels)
        with _blaming(param):
            if isinstance(source, bytes):
                return await self.images.fit(source, size, whose)
            if source.startswith("data:"):
                return await self.images.fit(from_data_url(source, param), size, whose)
            _refuse_long(param, source)
            async with self.fetcher.getting(source, self.max_body_bytes, whose) as (_, fetched):
                return await self.images.fit(fetched, size, whose)


def _refuse_long(param: str, url: str) -> None:
    if len(url) > _MAX_URL_CHARS:
        raise InvalidRequest(f"{param} is over {_MAX_URL_CHARS} characters.", param, "string_too_long")


@contextmanager
def _blaming(param: str) -> Generator[None]:
    """Names the parameter that an address or a picture came in, when it is refused."""
    try:
        yield
    except InvalidRequest as err:
        err.param = param
        raise


def _image_source(body: VideoBody) -> _ImageSource | None:
    request = body.request
    given = [
        _ImageSource(source, param)
        for source, param in (
            (body.upload, "input_reference"),
            (request.input_reference and request.input_reference.image_url, "input_reference.image_url"),
            (request.image_url, "image_url"),
        )
        if source is not None
    ]
    if len(given) > 1:
        raise InvalidRequest("Give one image: input_reference or image_url.", given[1].param, "invalid_value")
    return given[0] if given else None


def _requested(request: VideoRequest, image: str | None) -> RequestedVideo:
    """A request has the same fields, but a picture in place of its name."""
    same = {name: getattr(request, name) for name in _SAME}
    return RequestedVideo(**same, image=image)


def _choose(
    models: Sequence[Model], name: str | None, requested: RequestedVideo, fallback_seed: int
) -> tuple[Model, VideoSpec]:
    """The named model, or the first that can do it; raises what the likeliest one says when none can."""
    if name is not None:
        model = next((m for m in models if m.name == name), None)
        if model is None:
            raise no_such("model", name)
        return model, _settle(model, requested, fallback_seed)
    unfit = ImageUse.REQUIRED if requested.image is None else ImageUse.NONE
    models = [m for m in models if m.version.version_of is None]
    likely = [m for m in models if m.gang.rules.image is not unfit] or models
    refusal: InvalidRequest | None = None
    for model in likely:
        try:
            return model, _settle(model, requested, fallback_seed)
        except InvalidRequest as err:
            refusal = refusal or err
    raise refusal or NotFound("No video model is registered.", "model", "model_not_found")


def _settle(model: Model, requested: RequestedVideo, seed: int) -> VideoSpec:
    video = model.gang
    return settle(
        requested,
        video.rules,
        ulysses=video.ulysses,
        seed=seed,
        fp8=video.fp8,
        fp8_attention=video.fp8_attention,
        loras=video.loras,
        usual_loras=video.usual_loras,
    )


def _canonical(body: VideoBody) -> bytes:
    """The same for a form and for JSON that ask for the same."""
    words = body.request.model_dump_json(exclude_none=True).encode()
    return words if body.upload is None else words + hashlib.sha256(body.upload).digest()


def _idempotency(
    headers: SubmissionHeaders, what: str, canonical: Callable[[], bytes], own_id: str | None = None
) -> Idempotency | None:
    if own_id is not None and headers.idempotency_key not in (None, own_id):
        raise InvalidRequest(
            "task_id is an Idempotency-Key itself: leave the header out.", "task_id", "invalid_value"
        )
    if own_id is None and headers.idempotency_key is None:
        return None
    digest = hashlib.sha256(what.encode() + b"\n" + canonical()).hexdigest()
    if own_id is not None:
        return Idempotency(own_id, digest, "task_id")
    return Idempotency(str(headers.idempotency_key), digest)
