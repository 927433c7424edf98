"""Refusals of chats, of the closed list: what does not fit in the context, or has no place."""

from rotatek.errors import RequestTooLong, UserError


class PicturesDoNotFit(RequestTooLong):
    code = "pictures_do_not_fit"
    param = "messages"
    sentence = (
        "The pictures do not fit in the model's context. Send fewer or smaller ones, or ask for "
        "less detail."
    )


class QuestionDoesNotFit(RequestTooLong):
    code = "question_does_not_fit"
    param = "messages"
    sentence = "The question does not fit in the model's context. Shorten it and ask again."


class SystemDoesNotFit(RequestTooLong):
    code = "system_does_not_fit"
    param = "messages"
    sentence = "The system message does not fit in the model's context. Shorten it and ask again."


class HistoryDoesNotFit(RequestTooLong):
    code = "history_does_not_fit"
    param = "messages"
    sentence = (
        "The conversation so far does not fit in the model's context. Leave earlier turns out and "
        "ask again."
    )


class AnswerDoesNotFit(RequestTooLong):
    code = "answer_does_not_fit"
    param = "max_tokens"
    sentence = (
        "The image and question leave no room in the model's context for so long an answer. Ask "
        "for fewer new tokens."
    )


class PlacesUnequal(UserError):
    code = "places_unequal"
    sentence = "There is not one picture for each place in the text. Give as many as places."


class PartUnsupported(UserError):
    code = "part_unsupported"
    param = "messages"
    sentence = (
        "Parts of this type are not read. Send texts as text and pictures as image_url, and leave "
        "sound, films and files out."
    )
