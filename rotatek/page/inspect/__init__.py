"""Look inside: one head of the answered question, drawn under the settings of the page.

`drawings` turns numbers into figures, `widgets` shows them, `events` redraws them.
"""
