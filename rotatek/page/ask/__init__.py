"""The first tab: a picture, a question, settings, and the answers side by side.

`widgets` and `controls` have the widgets, `answers`, `agreement` and `readings` write HTML, and
`events`, `settings_events` and `export_events` handle what a visitor does.
"""
