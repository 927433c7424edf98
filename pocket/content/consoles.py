"""Lines that editors and terminals show: code, logs, commands and their output."""

import random

from pocket.content import formats, prose, words
from pocket.content.lexicon import word


def _name(rng: random.Random) -> str:
    return rng.choice(
        (
            word(rng),
            f"{word(rng)}_{word(rng)}",
            word(rng) + word(rng).capitalize(),
        )
    )


def source_lines(rng: random.Random, n: int) -> list[str]:
    """`n` lines of a program in no language in particular."""
    lines, depth = [], 0
    for _ in range(n):
        pad = " " * (4 * depth)
        r = rng.random()
        if r < 0.16 and depth < 3:
            lines.append(
                pad
                + rng.choice(
                    (
                        f"def {_name(rng)}({_name(rng)}):",
                        f"for {_name(rng)} in {_name(rng)}:",
                        f"if {_name(rng)} > {rng.randint(0, 99)}:",
                        f"class {_name(rng).capitalize()}:",
                    )
                )
            )
            depth += 1
        elif r < 0.3 and depth:
            lines.append(pad + f"return {_name(rng)}")
            depth -= 1
        elif r < 0.4:
            lines.append(pad + f"# {words.some(rng, 2, 4)}")
        else:
            lines.append(
                pad
                + rng.choice(
                    (
                        f"{_name(rng)}: {_name(rng)} = {rng.choice((None, True, 0.5))}",
                        f"{_name(rng)}[{rng.randint(0, 9)}] = {_name(rng)}.{_name(rng)}",
                        f"const {_name(rng)} = {{ {_name(rng)}: {rng.randint(0, 99)} }};",
                        f"print(f'{_name(rng)}: {{{_name(rng)}}}')",
                        f"assert {_name(rng)} != '{formats.anything(rng)}'",
                        f"// {prose.sentence(rng)}",
                        f'<{word(rng)} id="{word(rng)}">{word(rng)}</a>',
                        f'"{word(rng)}": "{formats.anything(rng)}",',
                        f"{_name(rng)} = {rng.randint(0, 999)}",
                        f'{_name(rng)} = "{word(rng)}"',
                        f"{_name(rng)}({_name(rng)}, {rng.randint(0, 9)})",
                        f"{_name(rng)} += {_name(rng)}",
                        f"import {_name(rng)}",
                    )
                )
            )
    return lines


def log_lines(rng: random.Random, n: int) -> list[str]:
    """`n` lines of a log: a time or a date, a level, what happened."""
    level = ("INFO", "WARN", "ERROR", "DEBUG")
    stamp = rng.choice((formats.clock, formats.clock, formats.date))
    return [
        f"{stamp(rng)} {rng.choice(level)} {words.some(rng, 1, 4).lower()}"
        + (f" {formats.anything(rng)}" if rng.random() < 0.3 else "")
        for _ in range(n)
    ]


def shell_lines(rng: random.Random, n: int) -> list[str]:
    """`n` lines of commands and what they print."""
    out: list[str] = []
    while len(out) < n:
        out.append(
            "$ "
            + rng.choice(
                (
                    f"cd {_name(rng)}",
                    f"ls {_name(rng)}",
                    f"git commit -m {_name(rng)}",
                    f"cat {_name(rng)}.txt",
                    f"make {_name(rng)}",
                    f"pip install {_name(rng)}=={formats.version(rng)}",
                    f"curl {formats.url(rng)}",
                    f"cp {formats.file_name(rng)} {formats.file_name(rng)}",
                    f"{_name(rng)} --{word(rng)}={rng.randint(0, 99)} -{word(rng)[0]}",
                )
            )
        )
        out += [words.some(rng, 1, 3).lower() for _ in range(rng.randint(0, 3))]
    return out[:n]
