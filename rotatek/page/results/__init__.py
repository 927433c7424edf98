"""The Results tab: figures of the repository's committed measurements.

`files` reads them, `styles` finds how a row is drawn, `answers` and `measurements` draw, `widgets`
and `events` are the tab. A file that is not there takes its figures with it.
"""
