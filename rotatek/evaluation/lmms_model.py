"""Any supported model under any settings, as lmms-eval wants it.

    accelerate launch --num_processes 4 -m lmms_eval --model rotatek --tasks textvqa_val,chartqa \\
        --model_args pretrained=Qwen/Qwen2.5-VL-7B-Instruct,tokens=fastv,keep_tokens=0.4

Needs the extra `rotatek[eval]`. What `rotatek.methods.settings.Settings.of` takes is a model
argument: `tokens`, `channels`, and every option of the methods they name. Each process of
accelerate loads the model on its own GPU.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from accelerate import Accelerator
from lmms_eval.api.instance import Instance
from lmms_eval.api.model import lmms
from tqdm import tqdm

from rotatek.engine.engine import Engine
from rotatek.engine.events import folded
from rotatek.errors import ModeUnsupported, UserError
from rotatek.inputs.request import Limits, make_request
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.methods.settings import Settings
from rotatek.models import load

log = logging.getLogger("rotatek")
NEW_TOKENS: Final = 128  # where a task does not say; short answers are what most tasks want


class RotateK(lmms):
    """The model that lmms-eval asks.

    Args:
        pretrained: a registered name, a folder or a hub id.
        device: cpu, cuda, or auto for several GPUs.
        batch_size: prompts at once; the engine decodes them in one step.
        options: settings by their flat names.
    """

    is_simple = True

    def __init__(
        self,
        pretrained: str = "pocket",
        device: str | None = None,
        batch_size: int | str = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        self.accelerator = Accelerator()
        self._rank = self.accelerator.process_index
        self._world_size = self.accelerator.num_processes
        if self._world_size > 1:
            device = str(self.accelerator.device)
        self.settings = Settings.of(**options)
        self.engine = Engine(load(pretrained, device))
        self.device = self.engine.vlm.device
        self.batch_size = int(batch_size)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Answers in the order of the requests, cut at a task's stop strings."""
        with ThreadPoolExecutor(self.batch_size) as pool:
            said = pool.map(self._answer, requests)
            answers = list(tqdm(said, total=len(requests), disable=self.rank != 0, unit="question"))
        for one, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("generate_until", one.args[:2], answer)
        return answers

    def _answer(self, instance: Instance) -> str:
        """One answer up to a stop string that says something; empty where the input is refused."""
        question, options, doc_to_visual, number, task, split = instance.args
        sampling = sampling_of(options, number)
        images = [image for image in doc_to_visual(self.task_dict[task][split][number]) if image]
        until = options.get("until") or []
        limit = min(int(options.get("max_new_tokens") or NEW_TOKENS), Limits().max_new_tokens)
        try:
            request = make_request(
                images, question.replace("<image>", ""), limit, sampling=sampling
            )
        except UserError as error:
            log.warning("document %s of %s counts as unanswered: %s", number, task, error.message)
            return ""
        settings = {"answer": self.settings}
        events = self.engine.compare(request, settings, trace=False)
        text = folded(events, settings)["answer"].report()["answer"]
        for end in [until] if isinstance(until, str) else until:
            text = text.split(end)[0] if end.strip() else text
        return text.strip()

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Refused: a likelihood is computed in one prefill, which compression never touches."""
        raise ModeUnsupported("Likelihood tasks say nothing of a compressed cache. Choose others.")

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """Refused: no task of the paper has several rounds."""
        raise ModeUnsupported("Tasks of several rounds are not supported. Choose others.")


def sampling_of(options: dict[str, Any], number: int) -> Sampling:
    """How a task wants an answer chosen: greedily, unless it samples; the document's number is the
    seed, so that a run can be repeated. Beams are refused."""
    if int(options.get("num_beams") or 1) > 1:
        raise ModeUnsupported("This task uses beams. Give --gen_kwargs num_beams=1.")
    if not options.get("do_sample"):
        return GREEDY
    given = {name: options[name] for name in ("top_p", "top_k", "min_p") if options.get(name)}
    temperature = options.get("temperature")
    return Sampling(temperature=1.0 if temperature is None else temperature, seed=number, **given)
