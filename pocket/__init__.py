"""The pocket models' training: the documents they learn from, the questions, the weights.

The two small vision-language models that the project ships have seen nothing but what is drawn
here: documents with known contents, questions about them, and the centre of every glyph, which an
auxiliary loss needs to teach models of this size to read. The library does without this package,
which is not installed with it; of what is here it knows only the embedded suites, as a
`rotatek.evaluation.suite.Suite`.

Each package imports only from those above it:

- `document`, `glyphs`: a picture, where each glyph of it stands, and questions with true answers
- `content`: what documents are about: words, numbers, topics, tables, charts
- `models`: the models' shapes, their tokenizer, and the forwards that training runs
- `questions`: what is asked, and in which words
- `layouts`: how contents are drawn: by Pillow, a browser (HTML), matplotlib and plotly.js
- `augmentation`: what printers, scanners and cameras do to a picture, and what stands beside its
  text
- `shards`, `mixture`: documents kept in files; how often training draws what
- `generate`: the document of a seed
- `training`: batches, the training itself, and what is made of several weights
- `evaluation`: measured splits, the suites that the library asks, and files of pictures
- `costs`: what a document takes to draw, and how small its type is

Commands, each with --help:

- `python -m pocket.browser`: pages and charts that a browser lays out, into shards
- `python -m pocket.training`: train one of the models, or go on training
- `python -m pocket.training.averaging`: one model of several
- `python -m pocket.evaluation`: measure a model
- `python -m pocket.evaluation.score`: the same through the library, on pictures in files
- `python -m pocket.evaluation.freeform`: the pages that are asked freely
- `python -m pocket.plain`: SmolLM2's answers to plain instructions
- `python -m pocket.costs`: the mixture, and what a picture of each kind takes to draw
- `python -m pocket.examples`: the gallery's images
- `python -m pocket.layouts.subset_fonts`: the fonts, cut to the letters that are used
"""
