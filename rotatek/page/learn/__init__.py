"""The Learn tab: seven short lessons on one example, which need no model.

`__main__` writes and draws them once (`python -m rotatek.page.learn`); `lessons` reads what it
stored, and `widgets` and `events` are the tab.
"""
