"""The Results tab: what the repository's committed measurements say, drawn from their files.

`files` reads them, `styles` finds how a row is drawn, `answers` and `measurements` draw, `widgets`
and `events` are the tab. A file that is not there takes its figures with it.
"""
