"""Charts as plotly.js draws them."""
