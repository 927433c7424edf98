"""Look inside: one head of the answered question, drawn under the settings of the page."""
