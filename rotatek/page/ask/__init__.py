"""The first tab: a picture, a question, settings, and the answers side by side.

`widgets` and `controls` have the widgets; `answers`, `token_agreement` and `settings_summary` write
HTML; `events`, `settings_events` and `export_events` handle what a visitor does.
"""
