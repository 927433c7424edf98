"""Drawing of contents: by Pillow, by a browser, by matplotlib and by plotly.js."""
