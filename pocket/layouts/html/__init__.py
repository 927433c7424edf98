"""Documents as HTML pages, for a browser to lay out."""
