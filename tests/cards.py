"""Small cards with a code word on each: an answer with a wrong word comes from a wrong picture."""

from PIL import Image, ImageDraw, ImageFont

WORDS = ("harbour", "meadow", "lantern", "copper", "violin", "saddle", "pepper", "marble")
QUESTION = "What is the code word?"


def card(word: str) -> Image.Image:
    """A small card with a code word on it."""
    image = Image.new("RGB", (336, 224), "white")
    pen = ImageDraw.Draw(image)
    pen.text((20, 20), "Guest card", fill="black", font=ImageFont.load_default(26))
    for row, line in enumerate(("Room: 214", f"Code word: {word}", "Floor: 3")):
        pen.text((20, 75 + 40 * row), line, fill="black", font=ImageFont.load_default(20))
    return image
