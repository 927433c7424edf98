"""Posters, covers of books, and price tags."""

from pocket.content import lexicon, words
from pocket.content.colours import hsv, ink_on
from pocket.layouts.pillow.lettering import (
    LARGE,
    Scene,
    fitted,
    ink_at,
    lettered,
    letters_for,
)


def poster(scene: Scene) -> None:
    """A poster or a book's cover: a title, names, a band, a publisher or a place at the foot."""
    rng, canvas, w, h = scene.rng, scene.canvas, scene.style.width, scene.style.height
    family, second = letters_for(scene), letters_for(scene)
    if rng.random() < 0.6:
        canvas.box(
            w * 0.06,
            h * 0.04,
            w * 0.94,
            h * 0.96,
            fill=hsv(rng.random(), rng.uniform(0, 0.8), rng.uniform(0.2, 1)),
        )
    _shapes(scene)
    book = rng.random() < 0.6
    title = words.some(rng, 1, 3).title()
    lines = title.split() if len(title) > 12 and rng.random() < 0.7 else [title]
    y = h * rng.uniform(0.12, 0.4)
    band = rng.random() < 0.5
    size = min(fitted(family, line, w * 0.78, h * 0.14).size for line in lines)
    face = family.bold(size)
    if band:
        ground = hsv(rng.random(), 0.7, rng.uniform(0.3, 0.95))
        canvas.box(w * 0.06, y - 8, w * 0.94, y + len(lines) * face.line + 8, fill=ground)
    align = rng.choice(("left", "centre"))
    x = w * 0.12 if align == "left" else w / 2
    _, ink = ink_at(scene, w / 2, y + face.line / 2)
    author, foot = (
        words.person(rng),
        rng.choice(
            (
                lexicon.word(rng).upper(),
                words.company(rng),
                lexicon.word(rng).capitalize() + " Press",
            )
        ),
    )
    upper = family.regular(max(11, size * rng.uniform(0.3, 0.55)))
    above = rng.random() < 0.5 and y > upper.line * 1.5 + h * 0.06
    if above:
        _, tone = ink_at(scene, x, y - upper.line * 1.4)
        canvas.text(x, y - upper.line * 1.5, author, upper, tone, align)
        scene.lines.append(author)
    for line in lines:
        lettered(scene, (x, y), line, face, ink, align)
        scene.lines.append(line)
        y += face.line
    if not above and y + upper.line * 2 < h * 0.8:
        _, tone = ink_at(scene, x, y + upper.line)
        canvas.text(x, y + upper.line * 0.6, author, upper, tone, align)
        scene.lines.append(author)
    low = second.bold(max(11, size * rng.uniform(0.25, 0.45)))
    _, tone = ink_at(scene, w / 2, h * 0.88)
    canvas.text(w / 2, h * 0.9 - low.line / 2, foot, low, tone, "centre")
    scene.lines.append(foot)
    noun = "book" if book else rng.choice(("poster", "event", "exhibition", "film"))
    for _ in range(2):
        scene.ask(
            "title",
            title,
            f"What is the title of the {noun}?",
            f"What is the {noun} called?",
            f"title of the {noun}",
            *LARGE,
        )
    if author in scene.lines:
        who = (
            ("Who wrote it?", "Who is the author?", "author?", "Who wrote the book?")
            if book
            else ("Who is it by?", "Which person is named?", "Whose name is on it?")
        )
        scene.ask("find", author, *who)
    foot_asked = "Which publisher is it?" if book else "What is written at the bottom?"
    scene.ask("find", foot, foot_asked, "What does the last line say?", "What is at the bottom?")


def _shapes(scene: Scene) -> None:
    """Decorations of covers: discs, bars, triangles of a few colours."""
    rng, pen, w, h = scene.rng, scene.canvas.draw, scene.style.width, scene.style.height
    tones = [hsv(rng.random(), rng.uniform(0.2, 0.9), rng.uniform(0.3, 0.95)) for _ in range(3)]
    for _ in range(rng.choice((0, 0, 2, 5, 9))):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0.02, 0.16) * w
        tone, kind = rng.choice(tones), rng.randrange(4)
        if kind == 0:
            pen.ellipse((x - r, y - r, x + r, y + r), fill=tone)
        elif kind == 1:
            pen.ellipse((x - r, y - r, x + r, y + r), outline=tone, width=max(2, round(r / 5)))
        elif kind == 2:
            pen.rectangle((x - r, y - r / 4, x + r, y + r / 4), fill=tone)
        else:
            pen.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=tone)


def plates(scene: Scene) -> None:
    """Price tags: something short on a small plate, one or several."""
    rng, canvas, w, h = scene.rng, scene.canvas, scene.style.width, scene.style.height
    family, n = letters_for(scene), rng.choice((1, 2, 3, 4))
    names = words.unique(rng, words.product, n)
    step = h / n
    pairs: list[tuple[str, str]] = []
    for i, name in enumerate(names):
        price = words.money(rng)(round(rng.uniform(0.3, 90), 2), True)
        big = fitted(family, price, w * 0.5, step * 0.42)
        small = family.regular(max(11, big.size * 0.45))
        wide = max(big.width(price), small.width(name)) + big.size * 0.6
        high = big.line + small.line + 10
        x = rng.uniform(0.08, 0.92) * max(4, w - wide)
        y = i * step + rng.uniform(0.2, 0.8) * max(0.0, step - high)
        if wide > w - 6 or high > step:
            continue
        ground = rng.choice(((255, 255, 250), (255, 236, 60), (240, 60, 50), (30, 30, 34)))
        canvas.box(x, y, x + wide, y + high, fill=ground, outline=(90, 90, 90), radius=4)
        canvas.text(x + wide / 2, y + 3, name, small, ink_on(ground), "centre")
        canvas.text(x + wide / 2, y + 3 + small.line, price, big, ink_on(ground), "centre")
        scene.lines += [name, price]
        pairs.append((name, price))
    for name, price in pairs:
        scene.ask(
            "value", price, f"How much is {name}?", f"What does {name} cost?", f"price of {name}?"
        )
        scene.ask("reverse", name, f"What costs {price}?", f"Which product costs {price}?")
    if len(pairs) == 1:
        scene.ask("value", pairs[0][1], "What is the price?", "How much is it?", "price?")
