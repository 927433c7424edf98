"""From bytes and text to a checked request, and from a request to token ids."""
