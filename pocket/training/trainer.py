"""A training run of one pocket model, on one process of one or several."""

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.glyphs import N_CLASSES
from pocket.models.config import UNIT, build_model, model_config, save_model
from pocket.models.forward import Forward
from pocket.training.data import BatchOptions, loader, make_batch
from pocket.training.growth import grown
from pocket.training.optimiser import optimisers
from pocket.training.running_mean import RunningMean
from pocket.training.sample_reuse import distance, echoed, uses
from pocket.training.schedule import Clock, rate

AGREE_EVERY: Final = 10  # steps between two checks of the clock by all ranks


class Trainer:
    """One rank's model, optimisers and counters.

    Args:
        args: The options of `training.options.arguments`.
        rank: Which process this is.
        world: How many there are.
    """

    passes: Any = Forward
    write: Any = staticmethod(save_model)
    cost = 52_000  # of a batch on one GPU, unless --cost says otherwise
    parts: tuple[str, ...] = ("answer_loss", "glyph_loss")  # what the forward's losses are

    def __init__(self, args: argparse.Namespace, rank: int, world: int) -> None:
        args.cost = args.cost or self.cost
        self.args, self.rank, self.world = args, rank, world
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", 0) if cuda else torch.device("cpu")
        torch.backends.cuda.matmul.allow_tf32 = True
        self.model = self.network(args).to(self.device).train()
        self.head = nn.Linear(self.model.config.vision_config.hidden_size, N_CLASSES)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, -5.0)
        if args.head:
            self.head.load_state_dict(load_file(args.head))
        self.head.to(self.device)
        self.forward = self.passes(self.model, compile_blocks=cuda and not args.no_compile)
        self.optimisers = self.updates(args)
        self.params = [*self.model.parameters(), *self.head.parameters()]
        self.mean = RunningMean(self.model.parameters(), args.mean) if args.mean else None
        self.clock = Clock(args)
        self.images = 0
        self.log: list[dict[str, float]] = []
        if (args.out / "checkpoint.pt").exists():
            self.resume()
        self.share_weights()

    def network(self, args: argparse.Namespace) -> Any:
        """The weights to begin with, float32 on the CPU."""
        config = model_config(2, 2, 256, 128) if args.tiny else model_config()
        if args.start:
            start = Qwen2_5_VLForConditionalGeneration.from_pretrained(
                args.start, dtype=torch.float32
            )
            return grown(start, config, args.seed)
        return build_model(config, args.seed)

    def take(self, folder: Path) -> None:
        """Take over the weights of an export of a model of this shape."""
        found = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self.model.load_state_dict(found.state_dict())

    def updates(self, args: argparse.Namespace) -> list[torch.optim.Optimizer]:
        """The optimisers of all that is trained."""
        return optimisers(self.model, self.head, args.lr, args.weight_decay, not args.adamw)

    def rate_of(self, group: dict[str, Any]) -> float:
        """What the learning rate of a group of parameters is multiplied by."""
        return 1.0

    def maker(self) -> Callable[..., Any]:
        """A function from (index, progress, world) to a batch."""
        return partial(make_batch, self.batch_options())

    def batch_options(self) -> BatchOptions:
        """The common settings of all batches of this run."""
        args = self.args
        return BatchOptions(args.seed, args.cost, args.pages, args.echo, args.alone, args.largest)

    def resume(self) -> None:
        """Continue from the checkpoint in the output folder."""
        state = torch.load(
            self.args.out / "checkpoint.pt", map_location=self.device, weights_only=True
        )
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        if self.mean and state["mean"]:
            self.mean.resume(state["mean"])
        self.clock.step, self.clock.before = state["step"], state["elapsed"]
        self.images, self.log = state["images"], state["log"]

    def save(self) -> None:
        """Write checkpoint, log and export."""
        out = self.args.out
        out.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "head": self.head.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
            "mean": self.mean and self.mean.state(),
            "step": self.clock.step,
            "elapsed": self.clock.elapsed,
            "images": self.images,
            "log": self.log,
        }
        torch.save(state, out / "checkpoint.tmp")
        (out / "checkpoint.tmp").replace(out / "checkpoint.pt")
        (out / "log.json").write_text(json.dumps(self.log) + "\n", encoding="utf-8")
        self.save_head(out / "head.safetensors")
        self.write(self.model, out / "export")
        if self.mean:
            with self.mean.in_place():
                self.write(self.model, out / "mean")

    def save_head(self, file: Path) -> None:
        """Write the glyph head, as `--head` reads it."""
        state = self.head.state_dict()
        save_file({name: value.contiguous().cpu() for name, value in state.items()}, file)

    def precision(self) -> torch.autocast:
        """bfloat16 on a GPU, float32 elsewhere."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def total(self, losses: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The loss of an update, from the forward's losses."""
        answer, glyph = losses
        return answer + self.args.glyph_weight * glyph

    def step(self, batch: Any) -> torch.Tensor:
        """One update; returns the losses, [parts], unsynchronised."""
        with self.precision():
            losses = self.forward.losses(batch, self.head)
        self.total(losses).backward()
        if self.world > 1:
            self.share_gradients()
        else:
            torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        lr = rate(self.clock.progress, self.clock.step, self.args)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = lr * self.rate_of(group)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if self.mean:
            self.mean.add()
        self.clock.step += 1
        self.images += len(batch.images) * self.world
        return torch.stack(losses).detach()

    def share_gradients(self) -> None:
        """Average gradients over the ranks, in one flat buffer of half the bytes, and clip them."""
        # Every rank sends the same list, whatever its batch held.
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        flat = torch.cat([g.flatten() for g in grads]).bfloat16()
        dist.all_reduce(flat)
        mean = flat.float().div_(self.world)
        mean.div_(mean.norm().clamp(min=1))
        for p, part in zip(self.params, mean.split([p.numel() for p in self.params]), strict=True):
            p.grad = part.view_as(p)

    def warm_up(self, make: Callable[..., Any]) -> None:
        """On a GPU: compile, and time a few passes, while no loader wants the processor yet."""
        begun = time.monotonic()
        progress = max(self.args.skip, self.clock.progress)
        made = make(index=self.rank, progress=progress, world=self.world)
        batch = uses(made.to(self.device))[0]
        forms = [batch, replace(batch, alone=not batch.alone)] if self.args.alone else [batch]
        passes = [self.time_passes(form) for form in forms]
        for p in self.params:
            p.grad = None
        gc.collect()
        gc.freeze()  # what compiling has left: no need to go through it again
        row = {"warm_up_s": round(time.monotonic() - begun, 1), "pass_ms": passes}
        if self.rank == 0:
            log_line(row | {"images": len(batch.text)})

    def time_passes(self, batch: Any) -> float:
        """Milliseconds of a pass, forward and backward, once it is compiled."""
        for lap in range(6):
            if lap == 1:
                torch.cuda.synchronize(self.device)
                started = time.monotonic()
            with self.precision():
                losses = self.forward.losses(batch, self.head)
            self.total(losses).backward()
            if self.world > 1:
                self.share_gradients()
        torch.cuda.synchronize(self.device)
        return round((time.monotonic() - started) * 200, 1)

    def share_weights(self) -> None:
        """Give every rank the weights of rank 0."""
        if self.world > 1:
            flat = torch.cat([p.detach().flatten() for p in self.params])
            dist.broadcast(flat, 0)
            with torch.no_grad():
                for p, part in zip(
                    self.params, flat.split([p.numel() for p in self.params]), strict=True
                ):
                    p.copy_(part.view_as(p))

    def over(self) -> bool:
        """Whether to stop now; rank 0's clock decides for all."""
        stop = self.clock.own_progress >= 1 or self.clock.link_over()
        if self.world > 1:
            word = torch.tensor([self.clock.own_progress, float(stop)], device=self.device)
            dist.broadcast(word, 0)
            self.clock.agreed, stop = float(word[0]), bool(word[1] > 0)
        return stop

    def batches(self, source: Iterator[Any]) -> Iterator[Any]:
        """The loaders' batches on the device and, between them, echoes of earlier ones."""
        seed = random.Random(f"{self.args.seed}/{self.rank}/{self.clock.step}").getrandbits(48)
        pixels = self.args.cost * UNIT**2 * 3  # bytes, at most: every visual token costs 1 or more
        return echoed(source, self.device, distance(pixels, self.args.echo), seed)

    def run(self) -> None:
        """Train until the schedule or the link is over."""
        args = self.args
        workers = max(1, args.workers // self.world)
        if self.over():
            return
        make = self.maker()
        if self.device.type == "cuda":
            self.warm_up(make)
        data, shared = loader(make, self.clock.step, self.rank, self.world, workers)
        shared.value = max(args.skip, self.clock.progress)
        began, waited = time.monotonic(), 0.0
        sums = torch.zeros(len(self.parts), device=self.device)
        count, images = 0, self.images
        batches = self.batches(iter(data))
        while True:
            asked = time.monotonic()
            batch = next(batches)
            waited += time.monotonic() - asked
            sums += self.step(batch)
            count += 1
            shared.value = max(args.skip, self.clock.progress)
            if count >= args.log_every:
                now = time.monotonic()
                speed = (self.images - images) / (now - began)
                self.report((sums / count).tolist(), speed, self.longest(waited))
                began, waited, count, images = now, 0.0, 0, self.images
                sums.zero_()
            if self.rank == 0 and self.clock.step % AGREE_EVERY == 0 and self.clock.to_save():
                self.save()
            if (self.world == 1 or self.clock.step % AGREE_EVERY == 0) and self.over():
                break
        if self.rank == 0:
            self.save()
        if self.world > 1:
            dist.barrier()

    def longest(self, seconds: float) -> float:
        """The largest over the ranks: all wait for the rank that waits for its loaders."""
        word = torch.tensor(seconds, device=self.device)
        if self.world > 1:
            dist.all_reduce(word, dist.ReduceOp.MAX)
        return word.item()

    def report(self, losses: list[float], speed: float, waited: float) -> None:
        """Note the losses and show them."""
        row = {
            "step": self.clock.step,
            "progress": round(self.clock.progress, 4),
            "seconds": round(self.clock.elapsed, 1),
            "images": self.images,
            **{name: round(loss, 4) for name, loss in zip(self.parts, losses, strict=True)},
            "images_per_s": round(speed, 1),
            "loader_wait_s": round(waited, 2),
        }
        if self.device.type == "cuda":
            row["most_gb"] = round(torch.cuda.max_memory_allocated(self.device) / 1e9, 1)
        self.log.append(row)
        if self.rank == 0:
            log_line(row)


def train(args: argparse.Namespace, trainer: type[Trainer]) -> None:
    """Train as the options say, on every process that torchrun has started."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        see_one_gpu(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    trainer(args, rank, world).run()
    if world > 1:
        dist.destroy_process_group()


def see_one_gpu(local: int) -> None:
    """Let this process see GPU `local` alone, as its first: before CUDA has begun.

    Compiled code names its device, so that all ranks share one cache of it.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = seen.split(",")[local] if seen else str(local)


def log_line(row: dict[str, Any]) -> None:
    """One line of JSON on stderr, at once: `chain.sh` reads there how a run goes."""
    sys.stderr.write(json.dumps(row) + "\n")
    sys.stderr.flush()
