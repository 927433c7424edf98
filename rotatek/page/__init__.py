"""What the page is made of, apart from its widgets: the image door, the words, the figures.

`image` is the upload box whose bytes pass through `rotatek.inputs`; `run` turns engine events into
what one comparison has shown so far; `cards` writes that as HTML, every user's character escaped;
`inside` turns a trace into figures, `plots` sends them to the browser (`assets/figures.js` draws),
and `lens`, `tour` and `results` are the parts that show them. `app.py` puts the parts together.
"""
