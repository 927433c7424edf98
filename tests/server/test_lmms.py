"""lmms-eval 0.7.3, its OpenAI model: itself where it is installed, and always the call it sends.

The package wants torchvision, OpenCV and an older PyAV, which the test machine does not have.
"""

from types import SimpleNamespace
from typing import Any

import openai
import pytest
from PIL import Image

from tests.fixtures import Picture
from tests.server.conftest import uri

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
QUESTION = "What is it?\nAnswer with a single word."


@pytest.fixture
def shown(picture: Picture) -> Image.Image:
    return picture(80, 60, seed=19)


def call(image: Image.Image) -> dict[str, Any]:
    """What its chat model sends of a task's usual question: pictures as PNG, the picture first."""
    parts = [
        {"type": "image_url", "image_url": {"url": uri(image)}},
        {"type": "text", "text": QUESTION},
    ]
    messages = [{"role": "user", "content": parts}]
    return {"messages": messages, "model": "tiny", "max_tokens": 9, "temperature": 0}


def test_the_call_that_it_sends(client: openai.OpenAI, shown: Image.Image) -> None:
    create: Any = client.chat.completions.create
    said = create(**call(shown))
    assert said.choices[0].message.content
    assert said.usage.completion_tokens == 9 and said.usage.prompt_tokens > 0
    assert said.usage.completion_tokens_details.reasoning_tokens == 0
    usual = call(shown) | {"max_tokens": 1024, "top_p": 1.0, "seed": 42, "n": 1}
    assert create(**usual).choices[0].finish_reason in ("stop", "length")
    thinks = {"chat_template_kwargs": {"enable_thinking": False}}
    assert create(**call(shown), extra_body=thinks).choices[0].message == said.choices[0].message
    text = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    assert create(**call(shown) | {"messages": text}).usage.visual_tokens == 0


def test_the_model_itself(address: str, client: openai.OpenAI, shown: Image.Image) -> None:
    module = pytest.importorskip("lmms_eval.models.chat.openai", exc_type=ImportError)
    model = module.OpenAICompatible(
        model="tiny", base_url=f"{address}/v1", api_key="none", max_retries=1
    )
    content = [{"type": "image", "url": shown}, {"type": "text", "text": QUESTION}]
    model.task_dict = {"task": {"test": [{}, {}]}}
    requests = [
        SimpleNamespace(args=(
            "", lambda document: [{"role": "user", "content": content}],
            {"max_new_tokens": 9, "temperature": 0, "until": ["\n\n"]}, number, "task", "test",
        ))
        for number in range(2)
    ]  # fmt: skip
    create: Any = client.chat.completions.create
    expected = create(**call(shown))
    for told in model.generate_until(requests):
        assert told.text == expected.choices[0].message.content
        assert told.token_counts.output_tokens == 9
