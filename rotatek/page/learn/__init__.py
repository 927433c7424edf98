"""The Learn tab: seven short lessons on one stored example, which need no model.

`story` is the example, `lessons` the words and figures, `widgets` and `events` the tab.
`python -m rotatek.page.learn` makes the example anew.
"""
