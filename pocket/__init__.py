"""The pocket models' training: the documents they learn from, the questions, the weights.

The small vision-language models that the project ships learned to read on the documents of
this package: documents with known contents, questions about them, and the centre of every glyph,
which an auxiliary loss needs to teach models of this size to read. The library does not import this
package, which is not installed with it; it knows only the embedded suites, as a
`rotatek.evaluation.suite.Suite`.

Each package imports only from those above it:

- `document`, `glyphs`: a picture, the position of each glyph, and questions with true answers
- `content`: the contents of documents: words, numbers, topics, tables, charts
- `models`: the models' shapes, their tokenizer, and the forwards that training runs
- `questions`: the questions, and their wordings
- `layouts`: how contents are drawn: by Pillow, a browser (HTML), matplotlib and plotly.js
- `augmentation`: the effects of printers, scanners and cameras on a picture, and clutter
  around its text
- `shards`, `mixture`: documents kept in files; the share of each kind in training
- `generate`: the document of a seed
- `training`: batches, the training itself, and averages of several weights
- `evaluation`: measured splits, the library's suites, and files of pictures
- `costs`: the time to draw each kind of document, and its type sizes

Commands, each with --help:

- `python -m pocket.browser`: pages and charts that a browser lays out, into shards
- `python -m pocket.training`: train one of the models, or continue
- `python -m pocket.training.averaging`: one model of several
- `python -m pocket.training.glyph_head`: a head for shipped weights, which lack theirs
- `python -m pocket.evaluation`: measure a model
- `python -m pocket.evaluation.score`: the same through the library, on pictures in files
- `python -m pocket.evaluation.card`: the third model's card, from such figures
- `python -m pocket.evaluation.freeform`: the pages for free-form questions
- `python -m pocket.models.ship`: the third model's export, in its shipped form
- `python -m pocket.plain`: SmolLM2's answers to plain instructions
- `python -m pocket.costs`: the mixture, and the time to draw a picture of each kind
- `python -m pocket.examples`: the gallery's images
- `python -m pocket.layouts.subset_fonts`: the fonts, cut to the letters that are used
"""
