"""Let a browser lay out documents: `python -m pocket.browser FOLDER --count 1200`.

Needs Playwright and a Chromium; writes shards that training reads with `--pages FOLDER` and
evaluation with `--pages`. The centre of every glyph comes from the browser's own layout.
"""

import argparse
import base64
import io
import random
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from pocket import shards
from pocket.document import Document, Question
from pocket.glyphs import CLASS_OF
from pocket.layouts import fonts
from pocket.layouts.html.frames import framed, is_framed
from pocket.layouts.html.parts import style_sheet
from pocket.layouts.html.templates import HELD_OUT, OFTEN, TEMPLATES
from pocket.layouts.matplotlib.charts import draw_topic
from pocket.layouts.plotly.charts import figure, package_data
from pocket.layouts.style import pick_style

SIZES: Final = (
    (448, 448), (336, 588), (560, 420), (420, 560), (672, 448), (392, 784), (784, 560), (616, 784),
    (896, 672), (448, 336), (728, 392), (308, 392), (1008, 616), (1120, 644), (672, 672),
    (560, 336), (784, 448),
)  # fmt: skip
SYSTEM: Final = (
    "Liberation Sans",
    "Liberation Serif",
    "DejaVu Sans",
    "Noto Sans",
    "Noto Serif",
    "monospace",
)
GLYPHS_JS: Final = """() => {
  const out = [], texts = [], range = document.createRange();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, text = node.data;
    if (['SCRIPT', 'STYLE'].includes(node.parentNode.tagName.toUpperCase())) continue;
    range.selectNodeContents(node);
    const whole = range.getBoundingClientRect();
    const out_of_sight = whole.left < -1 || whole.top < -1 ||
      whole.right > innerWidth + 1 || whole.bottom > innerHeight + 1;
    if (whole.width > 0 && !out_of_sight) texts.push(text.trim());
    for (let i = 0; i < text.length; i++) {
      if (text[i].trim() === '') continue;
      range.setStart(node, i); range.setEnd(node, i + 1);
      const b = range.getBoundingClientRect();
      if (b.width > 0) out.push([text[i], b.left + b.width / 2, b.top + b.height / 2]);
    }
  }
  const e = document.documentElement;
  return {glyphs: out, texts, width: e.scrollWidth, height: document.body.scrollHeight};
}"""
PLOT_JS: Final = """async ({spec, rules, bar}) => {
  document.body.innerHTML = `<style>${rules} body{margin:0}</style><div id=plot></div>`;
  await document.fonts.ready;
  const static_ = !bar;
  await Plotly.newPlot('plot', spec.data, spec.layout, {staticPlot: static_, displayModeBar: bar});
}"""


def font_rule(rng: random.Random, split: str, style: Any) -> tuple[str, str]:
    """A font-face rule (or none) and the family to use."""
    if rng.random() < 0.4 and split == "train":
        return "", f"'{rng.choice(SYSTEM)}'"
    regular, bold = style.family.regular(12).slug, style.family.bold(12).slug
    rules = ""
    for slug, weight in ((regular, 400), (bold, 700)):
        data = base64.b64encode(fonts.slugs()[slug].read_bytes()).decode()
        rules += (
            f"@font-face{{font-family:F;font-weight:{weight};src:url(data:font/otf;base64,{data})}}"
        )
    return rules, "F"


def picture(page: Any, found: dict, questions: list[Question], name: str) -> Document | None:
    """A document of the page's present state, with the glyphs `found` in it; None without
    questions."""
    pixels = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    points = [(CLASS_OF[c], x, y) for c, x, y in found["glyphs"] if c in CLASS_OF]
    glyphs = np.array(points, np.float32).reshape(-1, 3)
    questions = [q for q in questions if q.answer]
    return Document(pixels, glyphs, questions, name) if questions else None


def render_matplotlib(seed: int) -> Document:
    """A chart by matplotlib: no browser's work, but too slow to be drawn while training."""
    rng = random.Random(f"matplotlib/{seed}")
    width, height = rng.choice(SIZES)
    document = draw_topic(rng, pick_style(rng, width, height, "train", fancy=0))
    document.renderer = "matplotlib"
    return document


def render_plotly(page: Any, seed: int) -> Document | None:
    """The plotly chart of `seed` on a page that has plotly.js loaded."""
    rng = random.Random(f"plotly/{seed}")
    width, height = rng.choice(SIZES)
    style = pick_style(rng, width, height, "train", fancy=0)
    rules, family = font_rule(rng, "train", style)
    page.set_viewport_size({"width": width, "height": height})
    spec, ask_about = figure(rng, style, family.strip("'"))
    page.evaluate(PLOT_JS, {"spec": spec, "rules": rules, "bar": rng.random() < 0.15})
    found = page.evaluate(GLYPHS_JS)
    return picture(page, found, ask_about(found["texts"]), "html-plotly")


def _inside(found: dict, width: int, height: int) -> bool:
    """Whether all of a page's text can be seen."""
    fits = found["width"] <= width and found["height"] <= height
    return fits and all(2 < x < width - 2 and 2 < y < height - 2 for _, x, y in found["glyphs"])


def render(page: Any, seed: int, split: str) -> Document | None:
    """The page of `seed`, or None when its content does not fit."""
    rng = random.Random(f"browser/{split}/{seed}")
    width, height = rng.choice(SIZES)
    templates = TEMPLATES if split == "train" else HELD_OUT
    name = rng.choice([n for n in templates for _ in range(OFTEN.get(n, 1))])
    style = pick_style(rng, width, height, split, fancy=0)
    rules, family = font_rule(rng, split, style)
    page.set_viewport_size({"width": width, "height": height})
    sheet = style_sheet(rng, style, family)
    template = templates[name]
    if split == "train" and is_framed(seed, name):
        template = partial(framed, template)
    for size in (1.0, 0.8, 0.6, 0.4):
        body, questions = template(rng, style, size)
        page.set_content(f"<style>{rules}{sheet}</style><body>{body}</body>", wait_until="load")
        page.evaluate("document.fonts.ready.then(() => 1)")
        found = page.evaluate(GLYPHS_JS)
        if _inside(found, width, height):
            break
    else:
        return None
    return picture(page, found, questions, f"html-{name}")


def plotly_page(browser: Any) -> Any:
    """An empty page with plotly.js, from plotly's Python package."""
    page = browser.new_page()
    page.set_content("<body></body>")
    page.add_script_tag(path=str(package_data() / "plotly.min.js"))
    return page


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line's options."""
    p = argparse.ArgumentParser(prog="python -m pocket.browser", description=__doc__)
    p.add_argument("folder", type=Path, help="where the shards go")
    p.add_argument("--count", type=int, default=100, help="documents")
    p.add_argument("--first", type=int, default=0, help="seed of the first")
    p.add_argument("--split", choices=("train", "unseen"), default="train")
    p.add_argument("--plotly", type=float, default=0.0, help="share of plotly's charts")
    p.add_argument("--matplotlib", type=float, default=0.0, help="share of matplotlib's charts")
    p.add_argument("--quality", type=int, nargs=2, default=(70, 85), help="range of WebP's quality")
    p.add_argument("--shard", type=int, default=300, help="documents of a shard")
    return p.parse_args(argv)


def documents(browser: Any, args: argparse.Namespace) -> Iterator[tuple[int, Document]]:
    """Documents without end, each with the seed after its own."""
    page = browser.new_page()
    charts = plotly_page(browser) if args.plotly else None
    for seed in count(args.first):
        which = random.Random(f"which/{seed}").random()
        if charts and which < args.plotly:
            document = render_plotly(charts, seed)
        elif which > 1 - args.matplotlib:
            document = render_matplotlib(seed)
        else:
            document = render(page, seed, args.split)
        if document is not None:
            yield seed + 1, document


def main(argv: list[str] | None = None) -> None:
    """Render and store."""
    args = arguments(argv)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this command needs it

    args.folder.mkdir(parents=True, exist_ok=True)
    made: list[Document] = []
    with sync_playwright() as play:
        chromium = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        drawn = islice(documents(browser, args), args.count)
        for done, (seed, document) in enumerate(drawn, 1):
            made.append(document)
            if len(made) == args.shard or done == args.count:
                path = args.folder / f"{args.split}-{seed:06}.zip"
                shards.write(path, made, *args.quality)
                said = f"{path.name}: {len(made)}, {path.stat().st_size / 1e6:.1f} MB"
                print(said, file=sys.stderr)
                made = []
        browser.close()


if __name__ == "__main__":
    main()
