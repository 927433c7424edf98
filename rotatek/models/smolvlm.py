"""SmolVLM and Idefics3: a SigLIP tower over tiles and a view of the picture, 64 or 169 tokens each;
the prompt names every tile's row and column."""

from collections.abc import Sequence
from typing import ClassVar

from PIL import Image
from torch import Tensor, nn

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, VisionLanguageModel
from rotatek.models.llava import vision_layers


class Idefics3(VisionLanguageModel):
    """`Idefics3ForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "idefics3"
    template: ClassVar[str | None] = (
        "<|im_start|>{% for m in messages %}{{ m['role'] | capitalize }}"
        "{{ ':' if m['content'][0]['type'] == 'image' else ': ' }}"
        "{% for part in m['content'] %}{% if part['type'] == 'image' %}{{ '<image>' }}"
        "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
        "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    )

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The image id, and the ids around a picture."""
        around = self.tokenizer.convert_tokens_to_ids(self._around)
        return (*self.visual_ids, around) if isinstance(around, int) else self.visual_ids

    @property
    def _around(self) -> str:
        return str(getattr(self.tokenizer, "fake_image_token", "<fake_token_around_image>"))

    @property
    def _side(self) -> int:
        """Visual tokens along one side of a tile."""
        config = self.model.config
        return int(
            config.vision_config.image_size // config.vision_config.patch_size / config.scale_factor
        )

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Cut into tiles, and add a view of the full picture."""
        out = self.images(images=[list(images)], return_row_col_info=True, return_tensors="pt")
        side, seen = self._side, self.token(self.image_token)
        count, grids, texts, start = side**2, [], [], 0
        tiled = list(zip(_first(out["rows"]), _first(out["cols"]), strict=True))
        for rows, columns in tiled:
            tiles = rows * columns
            if tiles:
                grids.append(Grid.tiled((rows, columns), (side, side), start))
            grids.append(Grid(side, side, start + tiles * count))
            start += (tiles + 1) * count
            texts.append(self._text(rows, columns, seen))
        views = sum(rows * columns + 1 for rows, columns in tiled)
        tensors = {
            name: out[name].to(self.device)
            for name in ("pixel_values", "pixel_attention_mask")
            if name in out
        }
        counts = (count,) * views
        return Pixels(tensors, counts, tuple(grids), tuple(texts), counts)

    def _text(self, rows: int, columns: int, seen: str) -> str:
        """The prompt's text for one picture: its tiles row by row, then the full picture."""
        tokenizer, around = self.tokenizer, self._around
        text = ""
        for row in range(1, rows + 1):
            for column in range(1, columns + 1):
                text += f"{around}<row_{row}_col_{column}>{seen}"
            text += "\n"
        whole = getattr(tokenizer, "global_image_token", "<global-img>")
        text += "\n" if rows else ""
        return f"{text}{around}{whole}{seen}{around}"

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last vision layer's."""
        return vision_layers(self.model.model.vision_model)[-1].self_attn, False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that the connector puts into one token."""
        connector, factor = self.model.model.connector, self.model.config.scale_factor
        shuffled = connector.pixel_shuffle(values, factor)
        return shuffled.unflatten(-1, (factor**2, -1)).mean(-2).flatten(0, 1)


class SmolVLM(Idefics3):
    """`SmolVLMForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "smolvlm"


def _first(nested: Sequence[Sequence[int]]) -> list[int]:
    """The one sample's list, plain numbers."""
    return [int(number) for number in nested[0]]
