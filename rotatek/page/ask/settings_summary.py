"""What the sliders keep, in a few words beside each; the numbers come from the settings."""

from html import escape
from typing import Final

from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.options import options_of
from rotatek.methods.settings import Settings
from rotatek.methods.shares import channels_kept, tokens_kept
from viz.theme import percent, size

WIDTH: Final = 128  # channels of a Key until a run says otherwise; so in the first embedded model


def token_reading(settings: Settings, tokens: int | None) -> str:
    """`keeps 230 of 576 tokens`; before an image is known, the share alone."""
    if not settings.prunes_tokens:
        return _reading(f"keeps all {tokens} tokens" if tokens else "keeps every visual token")
    share = settings.tokens.kept_share
    if not tokens:
        return _reading(f"keeps {percent(share)} of the visual tokens")
    return _reading(f"keeps {tokens_kept(tokens, share)} of {tokens} tokens")


def channel_reading(settings: Settings, width: int = WIDTH) -> str:
    """`keeps 32 of 128 channels`."""
    method = settings.channels
    if method.stores_everything:
        return _reading(f"keeps all {width} channels")
    if method.times_smaller is not None:
        return _reading(f"becomes {method.times_smaller:g} times smaller")
    if method.bits_a_number is not None:
        return _reading(f"stores {method.bits_a_number:g} bits a number on average")
    mean = " on average" if method.adapts else ""
    return _reading(f"keeps {channels_kept(width, method.key_share)} of {width} channels{mean}")


def beyond_reading(
    settings: Settings, width: int = WIDTH, heads: tuple[int, int] | None = None
) -> str:
    """`keeps 64 of 128 Value channels`, and what adaptive widths come to.

    Args:
        settings: of which the channel method counts.
        width: channels of a head.
        heads: the fewest and the most Key channels that a head of the present image gets, if known.
    """
    method = settings.channels
    if not has_beyond(type(method)):
        able = [one.label for one in CHANNELS.values() if has_beyond(one)]
        return _reading(f"works with {' and '.join(able)} only")
    if method.times_smaller is not None:
        return _reading(
            f"every channel gets the bits it earns, until all is {method.times_smaller:g} times "
            "smaller"
        )
    if method.bits_a_number is not None:
        return _reading(
            f"every channel gets the bits it earns, {method.bits_a_number:g} on average"
        )
    parts = [f"keeps all {width} Value channels"]
    if method.value_share < 1:
        kept = channels_kept(width, method.value_share)
        parts = [f"keeps {kept} of {width} Value channels"]
    if method.adapts:
        kept = channels_kept(width, method.key_share)
        spread = f", {heads[0]} to {heads[1]} on this image" if heads else ""
        parts.append(f"heads keep {kept} Key channels on average{spread}")
    return _reading("; ".join([*parts, *storage(method)]))


def has_beyond(method: type[ChannelMethod]) -> bool:
    """Whether a method has options that go beyond the paper."""
    return any(one.place == "beyond" for one in options_of(method))


def storage(method: ChannelMethod) -> list[str]:
    """In the words of its options, how a method stores numbers where that is not as usual."""
    return [
        dict(one.choices)[getattr(method, one.name)]
        for one in options_of(method)
        if one.place == "beyond"
        and len(one.choices) > 2
        and getattr(method, one.name) != one.default
    ]


def dropped(settings: Settings) -> str:
    """`60 % of tokens dropped, 75 % of Key channels dropped`."""
    bits = settings.channels.bits_a_number
    if bits is not None:
        share = settings.tokens.kept_share
        first = [f"{percent(1 - share)} of tokens dropped"] if share < 1 else []
        times = settings.channels.times_smaller
        kept = f"{bits:g} bits a number" if times is None else f"{times:g} times smaller"
        return ", ".join([*first, kept])
    shares = {
        "tokens": settings.tokens.kept_share,
        "Key channels": settings.channels.key_share,
        "Value channels": settings.channels.value_share,
    }
    parts = [f"{percent(1 - kept)} of {what} dropped" for what, kept in shares.items() if kept < 1]
    return ", ".join([*parts, *storage(settings.channels)]) or "nothing dropped"


def budget_reading(settings: Settings, held: tuple[int, int] | None = None) -> str:
    """The nominal budget that both sliders come to.

    Args:
        settings: of the sliders.
        held: bytes that the present image and answer would take, and those of a full cache.
    """
    share, past = settings.nominal_kv, settings.channels.extensions
    more = f' <span class="rk-past">beyond the paper: {escape(past)}</span>' if past else ""
    live, shown = "", share
    if held is not None:
        shown = held[0] / max(held[1], 1)
        live = f", about <b>{size(held[0])}</b> live of {size(held[1])} ({percent(shown)})"
    return (
        f'<p class="rk-budget" data-share="{shown:.4f}"><b>{percent(share)}</b> of the visual KV '
        f"cache, nominally{live}{more}</p>"
    )


def _reading(text: str) -> str:
    return f'<p class="rk-reading">{escape(text)}</p>'
