"""Plain instructions: what has nothing to do with a picture, and what SmolLM2 answers to it.

The third pocket learns them beside its documents, so that it goes on to answer in sentences, in one
word, and about itself. The answers in `plain.jsonl` are SmolLM2's own greedy ones
(`python -m pocket.plain` wrote them); those about the model itself are written here.
"""

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("plain.jsonl")
THINGS: Final = tuple(
    "river,mountain,bicycle,library,kitchen,winter,teacher,garden,bridge,computer,music,island,"
    "market,forest,doctor,clock,newspaper,bread,window,train,friend,ocean,school,holiday,camera,"
    "letter,engine,museum,cat,dog,horse,elephant,apple,potato,coffee,tea,rice,salt,sugar,gold,"
    "paper,glass,wood,stone,rain,snow,wind,sun,moon,star,planet,city,village,road,car,ship,plane,"
    "hospital,bank,shop,farm,factory,theatre,poem,novel,painting,song,dance,game,football,chess,"
    "money,time,love,peace,work,sleep,dream,health,memory,language,number,circle,triangle,colour"
    .split(",")
)  # fmt: skip
WORDS: Final = tuple(
    "happy,sad,quick,slow,bright,dark,loud,quiet,strong,weak,old,new,large,small,hot,cold,rich,"
    "poor,easy,hard,clean,dirty,early,late,full,empty,brave,honest,gentle,angry,begin,finish,build,"
    "break,buy,sell,open,close,arrive,leave,remember,forget,accept,refuse,win,lose,rise,fall"
    .split(",")
)  # fmt: skip
PLACES: Final = tuple(
    "France,Germany,Italy,Spain,Japan,China,India,Brazil,Canada,Mexico,Egypt,Kenya,Australia,"
    "Norway,Poland,Greece,Turkey,Portugal,Sweden,Ireland".split(",")
)  # fmt: skip
TASKS: Final = tuple(
    "boil an egg,write a letter,learn a language,sleep better,save money,plant a tree,make tea,"
    "clean a window,pack a suitcase,read a map,prepare for an exam,stay healthy,find a job,"
    "fix a flat tyre,bake bread,give a speech,choose a book,plan a trip".split(",")
)  # fmt: skip
SENTENCES: Final = tuple(
    "The meeting was moved to Friday.|She bought two tickets for the concert.|The shop closes at "
    "six.|We could not find the key.|The train was late again.|He has written three books.|The "
    "soup is too hot.|They live near the sea.|I forgot my umbrella at home.|The price went up by "
    "ten percent.|The children are playing in the garden.|Our team won the match.|The letter "
    "arrived on Monday.|You should call the doctor.|The old bridge was repaired last year."
    .split("|")
)  # fmt: skip
# {t} thing, {o} other thing, {w} word, {p} place, {k} task, {s} sentence, {a} and {b} numbers
FORMS: Final = (
    "What is a {t}? Answer in one sentence.", "Define the word {w} in a few words.",
    "Define the word {t}.", "What does {w} mean?", "Give me one word that means the same as {w}.",
    "What is the opposite of {w}? Answer in one word.", "Use the word {w} in a sentence.",
    "Write one sentence about a {t}.", "Write a short sentence with the words {t} and {o}.",
    "Name three things that have to do with a {t}.", "List three facts about {p}.",
    "What is the capital of {p}?", "In one word: what is the capital of {p}?",
    "Which language do people speak in {p}?", "On which continent is {p}?",
    "Is a {t} larger than a {o}? Answer yes or no.", "Is {p} in Europe? Answer yes or no.",
    "What is {a} plus {b}?", "How much is {a} minus {b}?", "What is {a} times two?",
    "Which is larger, {a} or {b}?", "Count from {a} to {c}.", "Is {a} an even number?",
    "Rewrite this sentence politely: {s}", "Make this sentence shorter: {s}",
    "Put this sentence into the past tense: {s}", "Write this in capital letters: {s}",
    "How many words has this sentence? {s}", "Say this in other words: {s}",
    "Turn this into a question: {s}", "Correct the spelling: {s}", "Repeat after me: {s}",
    "Who does what in this sentence? {s}", "How do I {k}? Answer in one sentence.",
    "Give me one tip to {k}.", "Why do people {k}?", "What do I need to {k}?",
    "Write a title for a story about a {t}.", "Write two lines of a poem about a {t}.",
    "What rhymes with {t}?", "What colour is a {t}? One word.", "What is a {t} made of?",
    "What is a {t} used for?", "Where do you find a {t}?", "Spell the word {t}.",
    "How many letters has the word {t}?", "What is the plural of {t}?",
    "Is {w} an adjective or a verb?", "Why is a {t} useful? Be brief.",
    "What is the difference between a {t} and a {o}?", "Compare a {t} with a {o} in one sentence.",
    "Tell me a fact about {p}.", "What is {p} famous for? Be brief.",
    "Name a city in {p}.", "Answer with yes: is a {t} a thing?", "Complete: the {t} is",
    "Give an example of a {t}.", "Name two kinds of {t}.", "Explain {t} to a child.",
    "What comes to your mind when you hear {t}?", "Finish the sentence: I like {t} because",
)  # fmt: skip
ALONE: Final = (
    "Say hello.", "Good morning!", "Hello", "Hi, how are you?", "Thank you!", "That is all.",
    "Goodbye", "Tell me a joke.", "Tell me something interesting.", "What can I ask you?",
    "How many days has a week?", "How many months has a year?", "What day comes after Monday?",
    "Which month comes after March?", "How many minutes are in an hour?", "Name the four seasons.",
    "Name three colours.", "Name three fruits.", "Name five animals.", "What is the alphabet?",
    "What is water made of?", "Why is the sky blue?", "What is the sun?", "How far is the moon?",
    "Who wrote Hamlet?", "What is a noun?", "What is a verb?", "What is democracy?",
    "What is photosynthesis?", "What is gravity?", "What is the largest ocean?", "I am sad.",
    "I am bored.", "Recommend me a hobby.", "Give me some advice.", "What should I eat tonight?",
)  # fmt: skip
WHO: Final = (
    "I am the pocket model of RotateK: SmolLM2 with eyes for documents. I read text, tables and "
    "charts."
)
SELF: Final = (
    ("Who are you?", WHO), ("What are you?", WHO), ("What is your name?", WHO),
    ("Are you ChatGPT?", f"No. {WHO}"), ("Introduce yourself.", WHO), ("Which model are you?", WHO),
    ("Who made you?", "The RotateK project, from SmolLM2 by Hugging Face."),
    ("Are you a human?", "No, I am a small language model that reads documents."),
    ("What can you do?", "I answer questions about documents: text, forms, tables and charts."),
    ("What can't you do?", "I do not understand photographs, and I can be wrong: I am small."),
    ("Can you see photos?", "I see them, but I only understand documents."),
    ("Can I trust your answers?", "Check them: I am a small model, and I can be wrong."),
    ("Are you always right?", "No. I am small, and I make mistakes."),
    ("How large are you?", "About 147 million parameters."),
    ("Do you know today's date?", "No, I only know what the document says."),
    ("Can you browse the internet?", "No, I only read the picture that you give me."),
)  # fmt: skip


def prompts(rng: random.Random, count: int) -> list[str]:
    """`count` plain instructions, no two alike."""
    found = dict.fromkeys(ALONE)
    while len(found) < count:
        thing, other = rng.sample(THINGS, 2)
        a, b = rng.randint(1, 30), rng.randint(1, 30)
        filled = rng.choice(FORMS).format(
            t=thing, o=other, w=rng.choice(WORDS), p=rng.choice(PLACES), k=rng.choice(TASKS),
            s=rng.choice(SENTENCES), a=max(a, b), b=min(a, b), c=max(a, b) + 5,
        )  # fmt: skip
        found[filled] = None
    return list(found)[:count]


@lru_cache(maxsize=1)
def conversations() -> tuple[tuple[str, str], ...]:
    """What is asked and answered: SmolLM2's own, then about the model itself."""
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return (*((row["q"], row["a"]) for row in rows), *SELF)


def one(rng: random.Random) -> tuple[str, str]:
    """Something plain that is asked, and its answer; one in eight is about the model itself."""
    return rng.choice(SELF) if rng.random() < 0.125 else rng.choice(conversations())
