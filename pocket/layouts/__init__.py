"""How contents are drawn: by Pillow, by a browser, by matplotlib and by plotly.js."""
