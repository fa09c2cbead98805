"""Runs stages of training, each for so many seconds, from saved state to saved state.

    python -m training.run --state STATE --out OUT --graph text:90 vae:225 polish:250 trunk:830 settle:220 check

State is one safetensors file a network (all under 16 MB) and `state.json`; a stage begins from what is there.
`export` writes the two model directories from it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from training import words
from training.captions import caption, prompts
from training.chinese import CHINESE
from training.draw import draw, pack
from training.english import ENGLISH
from training.everyday import WATCHED, everyday, meant
from training.export import export, latent_rgb
from training.first_bar import first_bar
from training.fit_experts import fit_expert, stages
from training.fit_vae import courses, encode_all, fit_vae, psnr, reconstruct
from training.meaning import FIELDS, NOTHING, Reader, fit_text, labels, told
from training.pictures import bank, film, shots
from training.pool import ClipPool, make_pool, table, verdicts
from training.recipe import BOUNDARY, FULL, GUIDANCE, MINI, SHIFT, STEPS
from training.sample import Sampler
from training.scenes import SCENES
from training.sheet import save_sheet
from training.world import FRAMES, SIDE, Clip

CHECK_SEED = 5
_WORDS = "shared.weight"
_NET = "diffusion_pytorch_model.safetensors"
PUBLISHED = {
    "vae": f"wan-tiny-t2v/vae/{_NET}",
    "text": "wan-tiny-t2v/text_encoder/model.safetensors",
    "high": f"wan-tiny-t2v/transformer/{_NET}",
    "low": f"wan-tiny-t2v/transformer_2/{_NET}",
    "trunk": f"wan-tiny-ti2v/transformer/{_NET}",
    "ti2v": f"wan-tiny-ti2v/transformer/{_NET}",
    "text_ti2v": "wan-tiny-ti2v/text_encoder/model.safetensors",
}


class Run:
    """The networks, the data, and where both are kept."""

    def __init__(self, args: argparse.Namespace):
        self.recipe = MINI if args.mini else FULL
        if args.clips:
            self.recipe = replace(self.recipe, clips=args.clips, shots=min(self.recipe.shots, args.clips))
        if args.batch:
            self.recipe = replace(self.recipe, batch=args.batch)
        self.mini = args.mini
        self.workers = multiprocessing.get_context("fork").Pool(min(14, os.cpu_count() or 1))
        self.state, self.out, self.cache, self.published = args.state, args.out, args.cache, args.published
        self.out.mkdir(parents=True, exist_ok=True)
        done = self.out / "finished.txt"
        self.finished = done.read_text().split() if args.again and done.exists() else []
        self.began = time.monotonic()
        self.pool: ClipPool = make_pool(
            self.workers,
            self.recipe.clips,
            self.recipe.shots,
            self.recipe.wordings,
            self.recipe.seed + args.salt,
        )
        self.log(
            f"made {self.recipe.clips} clips and {self.recipe.shots} shots, and {self.pool.ids.shape[1]} captions of each"
        )
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.compiled = self.device.type == "cuda" and not args.eager
        self.graphed = args.graph
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            torch._dynamo.config.recompile_limit = 64
            torch._dynamo.config.suppress_errors = True
        torch.manual_seed(self.recipe.seed + args.salt)
        self.notes = self._read_notes()
        self.packed = self.pool.packed.to(self.device)
        self.ids = self.pool.ids.to(self.device)
        self.shots = self.pool.shots.to(self.device)
        self._pictures: torch.Tensor | None = None
        self._latents: torch.Tensor | None = None
        self.check_set = prompts(self.recipe.checked, CHECK_SEED)

    @contextlib.contextmanager
    def forgiving(self, name: str) -> Iterator[None]:
        """A look at what was learned must not cost what is still to be learned."""
        try:
            yield
        except Exception:  # noqa: BLE001 — whatever it was, training goes on
            self.log(f"{name} failed: {traceback.format_exc()}")

    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "check": self.check_all,
            "check-vae": self.check_vae,
            "check-watched": self.check_watched,
            "check-bars": self.check_bars,
            "check-scenes": self.check_scenes,
            "check-pictures": self.check_pictures,
        } | {f"check-{kind}": partial(self.check, kind) for kind in ("trunk", "t2v", "ti2v")}

    def train(self, name: str, value: str) -> None:
        match name:
            case "text":
                self.fit_text(float(value))
            case "vae" | "polish" | "widen" | "decoder":
                self.fit_vae(float(value), part=name)
            case "encode":
                self.latents()
            case "export":
                self.export(Path(value))
            case _:
                self.fit_expert(name, float(value))

    def finish(self, stage: str) -> None:
        """Notes a stage as done, so that `--again` goes on after it."""
        with (self.out / "finished.txt").open("a") as file:
            file.write(stage + "\n")

    def log(self, line: str) -> None:
        said = f"[{time.monotonic() - self.began:6.1f}] {line}"
        print(said, flush=True)
        with (self.out / "log.txt").open("a") as file:
            file.write(said + "\n")

    def _read_notes(self) -> dict:
        file = self.state / "state.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def load(self, model: nn.Module, *names: str) -> bool:
        """Fills `model` from the first of `names` in this run's state, else in earlier state, else as published. Weights of
        other shapes are left out; where these are most, all are."""
        own = [folder / f"{name}.safetensors" for name in names for folder in (self.out, self.state)]
        published = [self._published(name) for name in names]
        for file in (*own, *published):
            if file is not None and file.exists():
                there, wanted = load_file(file), model.state_dict()
                if file in published:
                    self._move_words(there, wanted, file.parent.parent / "tokenizer" / "tokenizer.json")
                fits = {k: v.float() for k, v in there.items() if k in wanted and v.shape == wanted[k].shape}
                self.log(f"{names[0]}: {len(fits)} of {len(there)} weights from {file}")
                if len(fits) > 0.8 * len(there):
                    model.load_state_dict(fits, strict=False)
                    return True
        return False

    def _move_words(
        self, there: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], tokenizer: Path
    ) -> None:
        """Brings published embeddings of words in the order of today's vocabulary, which may have grown."""
        if _WORDS not in there or there[_WORDS].shape[1] != wanted[_WORDS].shape[1]:
            return
        known = words.published_ids(tokenizer)
        there[_WORDS] = words.carried_over(there[_WORDS].float(), known, wanted[_WORDS])
        self.log(f"{len(set(words.word_ids()) - set(known))} words are new, {len(known)} were known")

    def _published(self, name: str) -> Path | None:
        """Where the exported weights keep a network: what training goes on from when there is no state."""
        if self.published is None or name not in PUBLISHED:
            return None
        return self.published / PUBLISHED[name]

    def save(self, name: str, model: nn.Module, dtype: torch.dtype = torch.float16) -> None:
        weights = {k: v.to("cpu", dtype).contiguous().clone() for k, v in model.named_parameters()}
        unfinished = self.out / f"{name}.part"
        save_file(weights, unfinished)
        unfinished.replace(self.out / f"{name}.safetensors")
        (self.out / "state.json").write_text(json.dumps(self.notes))

    def vae(self) -> nn.Module:
        vae = self.recipe.vae().to(self.device)
        self.load(vae, "vae")
        return vae.requires_grad_(False).eval()

    def expert(self, *names: str) -> nn.Module:
        """The first of `names` that was trained, or a fresh one that predicts nothing yet."""
        model = self.recipe.expert()
        if not self.load(model, *names):
            nn.init.zeros_(model.proj_out.weight)
        return model.to(self.device)

    def text(self, *names: str) -> nn.Module:
        model = self.recipe.text()
        self.load(model, *names)
        return model.to(self.device)

    def pictures(self) -> torch.Tensor:
        if self._pictures is None:
            self._pictures = bank(self.recipe.pictures, self.device, self.recipe.seed)
            self.log(f"made {len(self._pictures)} pictures")
        return self._pictures

    def fit_text(self, seconds: float) -> None:
        """The text encoder alone, on what captions mean."""
        text, reader = self.text("text"), Reader(self.recipe.text_dim)
        self.load(reader, "reader")
        reader = reader.to(self.device)
        fit_text(
            text,
            reader,
            self.ids,
            self.pool.goals.to(self.device),
            self.recipe.text_lr,
            self.recipe.text_batch,
            seconds,
            self.compiled,
            self.graphed,
            self.log,
        )
        self.save("text", text)
        self.save("reader", reader)
        self.check_text(text, reader)

    def check_text(self, text: nn.Module, reader: Reader) -> None:
        """Which of the watched prompts are understood before anything is drawn."""
        found = told(text, reader, words.encode([said for said, _ in WATCHED]).to(self.device)).tolist()
        asked = [
            i
            for i, (name, _) in enumerate(FIELDS)
            if name.split()[0] not in ("size", "pace", "place", "tone")
        ]
        right = 0
        for (said, meaning), got in zip(WATCHED, found, strict=True):
            goal = labels(meant(meaning))
            wrong = [
                f"{FIELDS[i][0]} {FIELDS[i][1][got[i]]}" for i in asked if goal[i] not in (NOTHING, got[i])
            ]
            right += not wrong
            if wrong and not self.mini:
                self.log(f"misread {said!r}: {', '.join(wrong)}")
        self.log(f"text: {right} of {len(WATCHED)} watched prompts understood")

    def fit_vae(self, seconds: float, part: str) -> None:
        vae = self.vae()
        (vae.decoder if part == "decoder" else vae).requires_grad_(True)
        ema = fit_vae(
            vae,
            self.packed,
            self.pictures(),
            courses(self.recipe)[part],
            self.recipe.ema,
            seconds,
            self.compiled,
            self.graphed,
            self.log,
            lambda model: self.save("vae", model, torch.float32),
        )
        self.save("vae", ema, torch.float32)
        if part != "decoder":
            self._latents = None
        self.check_vae()

    @torch.no_grad()
    def check_vae(self) -> None:
        asked = [clip for clip, _ in self.check_set[:100]]
        frames, near = draw(pack(asked).to(self.device), FRAMES, SIDE)
        again = reconstruct(self.vae(), frames)
        near = (near > 0).float()
        self.log(
            f"vae PSNR whole {psnr(again, frames)} near things {psnr(again, frames, near)} "
            f"frame 0 {psnr(again[:, 0], frames[:, 0], near[:, 0])} "
            f"last {psnr(again[:, -1], frames[:, -1], near[:, -1])}"
        )
        shown = self.pictures()[:16, :, 32:160, 32:160].float().unsqueeze(1)
        self.log(f"vae PSNR of pictures {psnr(reconstruct(self.vae(), shown), shown)}")
        self.log(f"checker on drawn clips {table(verdicts(self.workers, asked, frames))}")
        scores = table(verdicts(self.workers, asked, again))
        self.log(f"checker on reconstructed clips {scores}")
        save_sheet(
            self.out / "vae.png", [x for pair in zip(frames[:8], again[:8], strict=True) for x in pair]
        )
        if scores["shape"] < 60 and not self.mini:
            raise SystemExit("the VAE cannot show shapes yet: nothing to train experts on")

    def latents(self) -> torch.Tensor:
        """Normalized latents of every clip, kept in a file beside for the next run on this machine."""
        if self._latents is not None:
            return self._latents
        vae = self.vae()
        mark = [round(float(p.double().abs().sum()), 3) for p in list(vae.parameters())[:6]]
        kept = None
        if self.cache and self.cache.exists():
            with contextlib.suppress(Exception):
                kept = torch.load(self.cache, map_location=self.device)
        if kept is None or kept["mark"] != mark or len(kept["latents"]) < 16:
            batch = self.recipe.encode_batch
            raw = encode_all(vae, self.packed, self.pictures(), self.shots, batch, self.compiled)
            sample = raw[:20000].float()
            mean, std = sample.mean((0, 1, 3, 4)), sample.std((0, 1, 3, 4))
            for part in raw.split(4096):
                part.copy_((part.float() - mean.view(-1, 1, 1)) / std.view(-1, 1, 1))
            kept = {"mark": mark, "latents": raw, "mean": mean, "std": std}
            self.log(f"encoded {len(raw)} clips; std of channels {[round(v, 2) for v in std.tolist()]}")
            if self.cache:
                torch.save(kept, self.cache)
                self.log("kept the latents")
        self.notes |= {"mean": kept["mean"].tolist(), "std": kept["std"].tolist()}
        picked = slice(0, 256)
        frames, _ = draw(self.packed[picked], FRAMES, SIDE)
        self.notes["preview"] = latent_rgb(kept["latents"][: len(frames)].float(), frames)
        (self.out / "state.json").write_text(json.dumps(self.notes))
        self._latents = kept["latents"]
        return self._latents

    def fit_expert(self, name: str, seconds: float) -> None:
        stage = stages(self.recipe, BOUNDARY)[name]
        name = "trunk" if name == "settle" else name
        model = self.expert(name, "trunk")
        learns = name in ("trunk", "ti2v")
        voice = "text_ti2v" if name == "ti2v" else "text"
        text = self.text(voice, "text")

        def checkpoint(expert: nn.Module, encoder: nn.Module) -> None:
            self.save(name, expert)
            if learns:
                self.save(voice, encoder)

        latents = self.latents()
        expert, encoder = fit_expert(
            model,
            text,
            learns,
            latents,
            self.ids,
            len(self.packed),
            stage,
            self.recipe,
            seconds,
            self.compiled,
            self.graphed,
            self.log,
            checkpoint,
        )
        checkpoint(expert, encoder)

    def sampler(self, kind: str) -> Sampler:
        mean, std = (torch.tensor(self.notes[k], device=self.device) for k in ("mean", "std"))
        high = self.expert(*{"t2v": ("high", "trunk"), "ti2v": ("ti2v", "trunk"), "trunk": ("trunk",)}[kind])
        low = None if kind == "ti2v" else self.expert(*(("trunk",) if kind == "trunk" else ("low", "trunk")))
        text = self.text(*(("text_ti2v", "text") if kind == "ti2v" else ("text",)))
        for model in (high, low, text):
            if model is not None:
                model.requires_grad_(False).eval()
        return Sampler(self.vae(), text, high, low, mean, std)

    @torch.no_grad()
    def check(self, kind: str, guidance: float = GUIDANCE, steps: int = STEPS, shift: float = SHIFT) -> None:
        self.latents()
        sampler = self.sampler(kind)
        asked = [clip for clip, _ in self.check_set]
        said = [text for _, text in self.check_set]
        side = 32 if self.mini else SIDE
        made = sampler.decode(sampler.latents(said, FRAMES, side, steps, guidance, shift, seed=1))
        found = verdicts(self.workers, asked, made)
        ones = [v for c, v in zip(asked, found, strict=True) if len(c.things) == 1]
        twos = [v for c, v in zip(asked, found, strict=True) if len(c.things) > 1]
        self.log(
            f"{kind} words only, guidance {guidance} steps {steps} shift {shift}: {table(found)}; "
            f"one thing {table(ones)}; more {table(twos)}"
        )
        save_sheet(self.out / f"{kind}.png", list(made[:16]))
        if kind == "ti2v":
            frames, _ = draw(pack(asked).to(self.device), FRAMES, side)
            first = sampler.first_latents(frames[:, 0])
            shown = sampler.decode(first)[:, 0]
            made = sampler.decode(sampler.latents(said, FRAMES, side, steps, guidance, shift, 2, first))
            found = verdicts(self.workers, asked, made)
            self.log(f"ti2v given the first frame: {table(found)}; PSNR of frame 0 {psnr(made[:, 0], shown)}")
            save_sheet(self.out / "i2v.png", list(made[:16]))

    @torch.no_grad()
    def check_said(self, name: str, asked: list[Clip], said: list[str], seed: int) -> None:
        """Prompts drawn in one batch and judged; what came out wrong is named, and the clips are shown."""
        sampler = self.sampler("trunk")
        side = 32 if self.mini else SIDE
        made = sampler.decode(sampler.latents(said, FRAMES, side, STEPS, GUIDANCE, SHIFT, seed=seed))
        found = verdicts(self.workers, asked, made)
        for text, verdict in zip(said, found, strict=True):
            if wrong := [k for k in ("colour", "shape", "motion", "background") if not getattr(verdict, k)]:
                self.log(f"{name}: {', '.join(wrong)} wrong in: {text}")
        self.log(f"{name}, {len(said)} prompts: {table(found)}")
        save_sheet(self.out / f"{name}.png", list(made[:20]))

    def check_watched(self) -> None:
        half = len(WATCHED) // 2
        for name, part in (("watched-en", WATCHED[:half]), ("watched-zh", WATCHED[half:])):
            self.check_said(name, [meant(meaning) for _, meaning in part], [said for said, _ in part], seed=1)

    def check_bars(self) -> None:
        """Both bars, in batches: a first look before `training.quality` judges the exported weights."""
        for language in ("en", "zh"):
            bar = everyday(language)
            self.check_said(f"everyday-{language}", [meant(m) for _, m in bar], [s for s, _ in bar], seed=2)
        first = first_bar()
        self.check_said("first-bar", [clip for clip, _ in first], [said for _, said in first], seed=2)

    @torch.no_grad()
    def check_scenes(self) -> None:
        """Scenes by their shortest names, to be looked at."""
        said = [
            CHINESE.words["scene"][name][0] if i % 2 else ENGLISH.words["scene_3"][name][-1]
            for i, name in enumerate(SCENES)
        ]
        said = [text.replace("{tone}", "红色" if i % 2 else "red") for i, text in enumerate(said)]
        sampler = self.sampler("trunk")
        side = 32 if self.mini else SIDE
        made = sampler.decode(sampler.latents(said, FRAMES, side, STEPS, GUIDANCE, SHIFT, seed=3))
        save_sheet(self.out / "scenes.png", list(made))

    @torch.no_grad()
    def check_pictures(self) -> None:
        """Pictures that no training step saw, moved by words: how like they are to where the camera went."""
        pictures = bank(16, self.device, self.recipe.seed + 1)
        made = list(islice(shots(9), 16))
        rng = random.Random(9)
        said = [caption(rng, clip, (ENGLISH, CHINESE)[i % 2]) for i, (clip, _) in enumerate(made)]
        side = 32 if self.mini else SIDE
        goal = film(pictures, torch.tensor([n for _, n in made], device=self.device), FRAMES, side)
        sampler = self.sampler("ti2v")
        first = sampler.first_latents(goal[:, 0])
        drawn = sampler.decode(sampler.latents(said, FRAMES, side, STEPS, GUIDANCE, SHIFT, 4, first))
        still = goal[:, :1].expand_as(goal)
        self.log(
            f"pictures moved by words: PSNR {psnr(drawn, goal)} (unmoved {psnr(still, goal)}), "
            f"frame 0 {psnr(drawn[:, 0], goal[:, 0])}"
        )
        save_sheet(
            self.out / "pictures.png", [x for pair in zip(goal[:8], drawn[:8], strict=True) for x in pair]
        )

    def check_all(self) -> None:
        for kind in ("t2v", "ti2v"):
            for guidance, steps, shift in ((3.0, 20, 5.0), (5.0, 20, 5.0), (4.0, 16, 3.0), (4.0, 20, 5.0)):
                self.check(kind, guidance, steps, shift)

    def export(self, folder: Path) -> None:
        mean, std, preview = (self.notes[k] for k in ("mean", "std", "preview"))
        t2v, ti2v = self.sampler("t2v"), self.sampler("ti2v")
        export(folder / "wan-tiny-t2v", t2v.vae, mean, std, t2v.text, t2v.high, t2v.low, preview)
        export(folder / "wan-tiny-ti2v", ti2v.vae, mean, std, ti2v.text, ti2v.high, None, preview)


def _planned(stages: list[str], plan: Path | None) -> Iterator[str]:
    """`stages`, then the lines of `plan` until one says `end`, however late they are written."""
    yield from stages
    read = 0
    while plan is not None:
        lines = plan.read_text().split() if plan.exists() else []
        if len(lines) == read:
            time.sleep(0.5)
            continue
        if lines[read] == "end":
            return
        yield lines[read]
        read += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "stages",
        nargs="*",
        help="text:S vae:S polish:S widen:S decoder:S trunk:S settle:S high:S low:S ti2v:S (S seconds), encode, check, export:DIR",
    )
    parser.add_argument(
        "--state", type=Path, default=Path("state/training"), help="where earlier runs left state"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("state/training"), help="where this run leaves state"
    )
    parser.add_argument(
        "--published", type=Path, help="exported models to go on from where there is no state"
    )
    parser.add_argument("--cache", type=Path, help="a file to keep the latents in")
    parser.add_argument(
        "--salt",
        type=int,
        default=0,
        help="added to the seed, so that a later stretch sees other clips and wordings",
    )
    parser.add_argument(
        "--mini", action="store_true", help="networks and data of toy size, to try the program"
    )
    parser.add_argument(
        "--clips", type=int, help="how many clips to draw from, where not the recipe's number"
    )
    parser.add_argument("--graph", action="store_true", help="replay each step of training as a CUDA graph")
    parser.add_argument(
        "--batch", type=int, help="clips a step of the experts, where not the recipe's number"
    )
    parser.add_argument(
        "--again", action="store_true", help="leave out the stages that were finished in --out"
    )
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    parser.add_argument(
        "--plan",
        type=Path,
        help="a file of further stages, a line each, read as it grows; `end` ends the run",
    )
    args = parser.parse_args()
    run = Run(args)
    for stage in _planned(args.stages, args.plan):
        if stage in run.finished:
            continue
        name, _, value = stage.partition(":")
        if name.startswith("check"):
            with run.forgiving(name):
                run.checks()[name]()
        else:
            run.train(name, value)
        run.finish(stage)
    run.log("done")


if __name__ == "__main__":
    main()
