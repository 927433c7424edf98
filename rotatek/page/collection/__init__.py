"""The page's Collection tab: pictures and PDFs are read once, and all of them are asked.

`pages.py` reads and holds the pages of each visitor, `events.py` has the widgets and
handles the buttons, `drawing.py` writes HTML.
"""
