"""The Learn tab: seven short lessons on one example, which need no model.

`__main__` words and draws them, once; `lessons` reads what it stored, and `widgets` and `events`
are the tab. `python -m rotatek.page.learn` makes the lessons anew.
"""
