"""Look inside: one head of the answered question, drawn under the settings of the page.

`drawings` says which numbers go into which picture, `widgets` where they are shown, `events` what
makes them change.
"""
