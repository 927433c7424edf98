"""The Learn tab: seven short lessons on one example, which need no model.

`python -m docs.lessons` writes and draws them once, in a checkout; `lessons` reads what it
stored, and `widgets` and `events` are the tab.
"""
