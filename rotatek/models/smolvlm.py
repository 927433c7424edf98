"""SmolVLM and Idefics3: a SigLIP tower over tiles and a view of the picture, 64 or 169 tokens each;
the prompt names every tile's row and column."""

from collections.abc import Sequence
from typing import ClassVar

from PIL import Image

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, Shown, VisionLanguageModel


class Idefics3(VisionLanguageModel):
    """`Idefics3ForConditionalGeneration`, `SmolVLMForConditionalGeneration`, and their tokenizers
    and image processors."""

    tower: ClassVar[str] = "vision_model"
    around: ClassVar[dict[str, str]] = {"fake_image_token": "<fake_token_around_image>"}

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Cut into tiles, and add a view of the full picture."""
        out = self.images(images=[list(images)], return_row_col_info=True, return_tensors="pt")
        vision, factor = self.model.config.vision_config, self.model.config.scale_factor
        side = int(vision.image_size // vision.patch_size / factor)  # tokens of a tile's
        shown = []
        for tiles in zip(out["rows"][0], out["cols"][0], strict=True):
            rows, columns = map(int, tiles)
            counts = (side**2,) * (rows * columns + 1)
            shown.append(
                Shown(self._text(rows, columns), counts, Grid.of_views(rows, columns, side))
            )
        names = {"pixel_values", "pixel_attention_mask"} & {*out}
        return Pixels.of({name: out[name].to(self.device) for name in names}, shown)

    def _text(self, rows: int, columns: int) -> str:
        """The prompt's text for one picture: its tiles row by row, then the full picture."""
        tokenizer, seen, text = self.tokenizer, self.token(self.image_token), ""
        (around,) = (getattr(tokenizer, *told) for told in self.around.items())
        for row in range(1, rows + 1):
            for column in range(1, columns + 1):
                text += f"{around}<row_{row}_col_{column}>{seen}"
            text += "\n"
        whole = getattr(tokenizer, "global_image_token", "<global-img>")
        text += "\n" if rows else ""
        return f"{text}{around}{whole}{seen}{around}"
