"""Plain instructions that have nothing to do with a picture, and SmolLM2's answers to them.

The third pocket learns them beside its documents, so that it goes on to answer in sentences, in one
word, and about itself. The answers in `plain.jsonl` are SmolLM2's own greedy ones
(`python -m pocket.plain` wrote them). Where there is one right answer, or one right form of it, and
about the model itself, the answers are written here: SmolLM2 is too small to be trusted with them.
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
CAPITALS: Final = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo",
    "China": "Beijing", "India": "New Delhi", "Brazil": "Brasília", "Canada": "Ottawa",
    "Mexico": "Mexico City", "Egypt": "Cairo", "Kenya": "Nairobi", "Australia": "Canberra",
    "Norway": "Oslo", "Poland": "Warsaw", "Greece": "Athens", "Hungary": "Budapest",
    "Portugal": "Lisbon", "Sweden": "Stockholm", "Ireland": "Dublin",
}  # fmt: skip
PLACES: Final = tuple(CAPITALS)
OUTSIDE: Final = frozenset("Japan China India Brazil Canada Mexico Egypt Kenya Australia".split())
OPPOSITES: Final = (
    ("happy", "sad"), ("quick", "slow"), ("bright", "dark"), ("loud", "quiet"), ("strong", "weak"),
    ("old", "new"), ("large", "small"), ("hot", "cold"), ("rich", "poor"), ("easy", "hard"),
    ("clean", "dirty"), ("early", "late"), ("full", "empty"), ("begin", "finish"), ("buy", "sell"),
    ("open", "close"), ("remember", "forget"), ("accept", "refuse"), ("win", "lose"),
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
# {t} thing, {o} other thing, {w} word, {p} place, {k} task, {s} sentence
FORMS: Final = (
    "What is a {t}? Answer in one sentence.", "Define the word {w} in a few words.",
    "Define the word {t}.", "What does {w} mean?", "Use the word {w} in a sentence.",
    "Write one sentence about a {t}.", "Write a short sentence with the words {t} and {o}.",
    "Name three things that have to do with a {t}.", "List three facts about {p}.",
    "Which language do people speak in {p}?", "On which continent is {p}?",
    "Rewrite this sentence politely: {s}", "Make this sentence shorter: {s}",
    "Put this sentence into the past tense: {s}", "Say this in other words: {s}",
    "Turn this into a question: {s}", "How do I {k}? Answer in one sentence.",
    "Give me one tip to {k}.", "Why do people {k}?", "What do I need to {k}?",
    "Write a title for a story about a {t}.", "Write two lines of a poem about a {t}.",
    "What is a {t} made of?", "What is a {t} used for?", "Where do you find a {t}?",
    "Why is a {t} useful? Be brief.", "What is the difference between a {t} and a {o}?",
    "Compare a {t} with a {o} in one sentence.", "Tell me a fact about {p}.",
    "What is {p} famous for? Be brief.", "Name a city in {p}.", "Complete: the {t} is",
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
        filled = rng.choice(FORMS).format(
            t=thing, o=other, w=rng.choice(WORDS), p=rng.choice(PLACES), k=rng.choice(TASKS),
            s=rng.choice(SENTENCES),
        )  # fmt: skip
        found[filled] = None
    return list(found)[:count]


def reckoned(rng: random.Random) -> tuple[str, str]:
    """A plain question that has one right answer, in the form that it asks for."""
    a, b = rng.randint(1, 40), rng.randint(1, 40)
    place, thing, said = rng.choice(PLACES), rng.choice(THINGS), rng.choice(SENTENCES)
    one, other = rng.sample(rng.choice(OPPOSITES), 2)
    more, less = max(a, b), min(a, b)
    return rng.choice((
        (f"What is {a} plus {b}?", f"{a + b}"),
        (f"How much is {a} plus {b}? Answer in a sentence.", f"{a} plus {b} is {a + b}."),
        (f"How much is {more} minus {less}?", f"{more - less}"),
        (f"What is {a} times two?", f"{2 * a}"),
        (f"Which is larger, {a} or {a + b}?", f"{a + b}"),
        (f"Is {a} an even number? Yes or no?", "no" if a % 2 else "yes"),
        (f"Count from {a} to {a + 4}.", ", ".join(map(str, range(a, a + 5)))),
        (f"In one word: what is the capital of {place}?", CAPITALS[place]),
        (f"What is the capital of {place}?", f"The capital of {place} is {CAPITALS[place]}."),
        (f"Is {place} in Europe? Answer yes or no.", "no" if place in OUTSIDE else "yes"),
        (f"What is the opposite of {one}? Answer in one word.", other),
        (f"Give me the opposite of {one} in a sentence.", f"The opposite of {one} is {other}."),
        (f"Repeat after me: {said}", said),
        (f"Write this in capital letters: {said}", said.upper()),
        (f"How many words has this sentence? {said}", str(len(said.split()))),
        (f"How many letters has the word {thing}?", str(len(thing))),
        (f"Spell the word {thing}.", "-".join(thing.upper())),
        (f"What is the first letter of {thing}?", thing[0].upper()),
    ))  # fmt: skip


@lru_cache(maxsize=1)
def conversations() -> tuple[tuple[str, str], ...]:
    """Instructions and SmolLM2's own answers."""
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return tuple((row["q"], row["a"]) for row in rows)


def own(rng: random.Random) -> tuple[str, str]:
    """An instruction and SmolLM2's own answer."""
    return rng.choice(conversations())


def one(rng: random.Random) -> tuple[str, str]:
    """A plain question and its answer; one in eight is about the model itself."""
    r = rng.random()
    if r < 0.125:
        return rng.choice(SELF)
    return reckoned(rng) if r < 0.4 else own(rng)
