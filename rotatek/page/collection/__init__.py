"""The page's Collection tab: pictures and PDFs are read once, and all of them are asked.

`visitors.py` holds the pages of each visitor, `reading.py` reads them, `events.py` handles the
buttons, `drawing.py` writes HTML, `widgets.py` has the widgets.
"""
