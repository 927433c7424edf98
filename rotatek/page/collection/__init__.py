"""The page's Collection tab: pictures and PDFs are read once, and all of them are asked.

`visitors.py` holds what each visitor has dropped, `reading.py` reads it, `events.py` is what the
buttons do, `drawing.py` says it in HTML, `widgets.py` has the widgets.
"""
