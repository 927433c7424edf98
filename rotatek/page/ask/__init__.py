"""The first tab: a picture, a question, and the answers side by side."""
