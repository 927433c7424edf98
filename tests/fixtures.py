"""What shared fixtures hand to tests, as types."""

from collections.abc import Callable

from PIL import Image

Picture = Callable[..., Image.Image]  # a maker of pictures: width, height, mode, seed
