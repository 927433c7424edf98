"""The first tab: a picture, a question, settings, and the answers side by side.

`widgets` and `controls` are what is seen, `answers`, `agreement` and `readings` write HTML, and
`events`, `settings_events` and `export_events` say what happens when something is touched.
"""
