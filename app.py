"""Serve the page at port 7860: `python app.py`. Everything it does is in `rotatek.page`."""

from rotatek.page.server import main

if __name__ == "__main__":
    main()
