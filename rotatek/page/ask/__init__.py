"""The first tab: a picture, a question, and the answers side by side.

`widgets` has the widgets; `answers` writes HTML; `events` handles what a visitor does.
"""
