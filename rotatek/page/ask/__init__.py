"""The first tab: a picture, a question, settings, and the answers side by side.

`widgets` has the widgets; `answers`, `card` and `parting` write HTML; `settings`, `events` and
`export_events` handle what a visitor does.
"""
