"""Look inside: one head of the answered question, drawn under the settings of the page.

`drawings` turns numbers into figures, `events` shows, measures and redraws them.
"""
