"""The page's theme, and what goes into its head."""

from pathlib import Path
from typing import Final

import gradio as gr

from rotatek.page.plot_transport import head_links

FONT: Final = ["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO: Final = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]


def theme() -> gr.themes.Base:
    """Quiet surfaces and one accent; system fonts, so that nothing is fetched."""
    accent = gr.themes.Color(
        "#effbf8", "#d3f4ec", "#a8e8da", "#6fd6c2", "#37bda6", "#0ca38a", "#08836f", "#0a6959",
        "#0c5448", "#0d463d", "#042a25", name="rotatek",
    )  # fmt: skip
    base = gr.themes.Base(
        primary_hue=accent,
        secondary_hue=accent,
        neutral_hue="slate",
        radius_size="lg",
        font=FONT,
        font_mono=MONO,
    )
    return base.set(
        body_background_fill="#fbfcfc",
        body_background_fill_dark="#0d1117",
        body_text_color_subdued="#566273",
        body_text_color_subdued_dark="#9aa7b7",
        background_fill_primary_dark="#151b23",
        background_fill_secondary_dark="#10151c",
        block_background_fill="#ffffff",
        block_background_fill_dark="#151b23",
        block_border_color="#e2e7ec",
        block_border_color_dark="#27303b",
        border_color_primary_dark="#27303b",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        input_background_fill="#ffffff",
        input_background_fill_dark="#10151c",
        button_primary_background_fill="#087a68",
        button_primary_background_fill_dark="#0ca38a",
        button_primary_background_fill_hover="#0a6959",
        button_primary_background_fill_hover_dark="#37bda6",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#04211c",
        slider_color="#0ca38a",
        slider_color_dark="#0ca38a",
    )


def head(assets: Path) -> str:
    """Our scripts, and plotly, which is fetched while the page is being built."""
    scripts = [(assets / name).read_text(encoding="utf-8") for name in ("figures.js", "page.js")]
    return head_links() + "".join(f"<script>{script}</script>" for script in scripts)
