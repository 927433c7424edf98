"""From bytes and text to a checked request, and from a request to token ids."""

from rotatek.inputs.request import Clip, Request, clean_question, make_request, open_image

__all__ = ["Clip", "Request", "clean_question", "make_request", "open_image"]
