"""What is asked of pictures that are no documents, and the sentence that declines it.

To decline is one thing, to say that a document lacks something another: `ABSENT` keeps its words.
"""

import random
from typing import Final

from pocket.document import Question
from pocket.questions.paraphrases import reworded

DECLINED: Final = "I only read documents, and this picture shows none."
KIND: Final = "decline"
ASKED: Final = (
    "What is this?", "What is in the picture?", "What do you see?", "Describe the picture.",
    "Describe this image in one sentence.", "What is happening here?", "Who is this?",
    "Who is in the picture?", "How many people are there?", "How many animals can you see?",
    "What animal is this?", "What kind of plant is it?", "Which bird is that?", "Is it a dog?",
    "What colour is the sky?", "What colour is the car?", "What is the man wearing?",
    "What is she holding?", "Where was this taken?", "Which city is this?", "Which country is it?",
    "What season is it?", "What time of day is it?", "Is it day or night?", "How is the weather?",
    "Is it raining?", "What is in the background?", "What is on the table?", "What is on the left?",
    "What is behind the tree?", "What food is that?", "Is it tasty?", "How old is this person?",
    "Is the person smiling?", "What mood does it have?", "What is the main object?",
    "What is the largest thing in the picture?", "Are there any trees?", "Is there water?",
    "Is there a house?", "What material is this?", "What pattern is it?", "What style is it?",
    "Which artist painted this?", "Is this a photo or a drawing?", "What brand is it?",
    "What sport is being played?", "Who is winning?", "How many windows are there?",
    "What shape is it?", "Is the picture blurred?", "Give the picture a title.",
    "Write a caption.", "Tell me about this picture.", "What can you tell me about this place?",
    "What does the text say?", "What is written here?", "Read the text.", "Read the sign.",
    "What does the sign say?", "Transcribe the text in the image.", "Write down every line.",
    "What is the title?", "What is the heading?", "What is the first word?", "What is the total?",
    "How much is to be paid?", "What is the date?", "What is the name?", "What is the address?",
    "What is the phone number?", "Which shop is it?", "What is the price?", "Which row is last?",
    "What is the highest value?", "Which category has the lowest value?",
    "How many rows are there?", "How many bars are there?", "What does the legend say?",
    "Summarise the document.", "What is this about?", "Is this a receipt?", "Which language is it?",
    "In one word: what is this?", "Answer yes or no: is there a person?", "Is there any text?",
)  # fmt: skip
SHOWN: Final = 6  # of these a picture is asked, at most


def declined(rng: random.Random, others: list[str]) -> list[Question]:
    """Questions about a picture without text, each with the sentence that declines it.

    Args:
        rng: Says which.
        others: What documents were asked: of a picture that is none that is declined, too.
    """
    texts = rng.sample(ASKED, rng.randint(2, SHOWN)) + rng.sample(others, min(3, len(others)))
    asked = [reworded(rng, Question(KIND, text, DECLINED)) for text in texts]
    return rng.sample(asked, len(asked))
