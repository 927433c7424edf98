"""The pocket model: the small vision-language model that the project trains and ships.

Everything it has seen is drawn by this package: documents with known contents
(:mod:`rotatek.pocket.renderers`), questions about them, and the centre of every glyph, which an
auxiliary loss needs to teach a model of this size to read. ``python -m rotatek.pocket.train``
makes the weights, ``python -m rotatek.pocket.evaluate`` measures them.
"""
