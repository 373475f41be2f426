"""Short passages of invented facts, and questions whose answers are spans of the passage."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

PADDING, UNKNOWN, SEPARATOR = 0, 1, 2


def split_list(text: str) -> list[str]:
    """The items between the commas of `text`."""
    return [item.strip() for item in text.split(",")]


FIRST_NAMES = split_list(
    """Ada, Agnes, Alma, Anton, Basil, Bruno, Clara, Cora, Daniel, Edith, Elias, Emil, Esther, Felix,
    Flora, Georg, Greta, Hanna, Hugo, Ida, Ines, Iris, Jakob, Jonas, Karl, Lena, Leo, Lydia, Marta, Max,
    Mira, Nils, Nora, Oscar, Otto, Paula, Rosa, Ruth, Simon, Vera"""
)
LAST_NAMES = split_list(
    """Abel, Arden, Bauer, Berg, Birch, Brandt, Carver, Castel, Dahl, Drake, Ekman, Fabre, Falk, Garner,
    Grimm, Hale, Holm, Ivers, Jansen, Keller, Krog, Lange, Lind, Marsh, Moreau, Nash, Nilsen, Orlov,
    Palmer, Quist, Reyes, Roth, Salter, Stark, Tamm, Ulmer, Vance, Weiss, Yates, Zeller"""
)
TOWNS = split_list(
    """Ambleford, Brackenfield, Cold Spring, Dunmarrow, East Haven, Elmsworth, Fernhill, Glenrock,
    Grey Harbour, High Lorne, Ivory Point, Kestrel Bay, Larkstead, Norwick, Oldbridge, Port Alder,
    Saint Corvin, Tarnow, Upper Vale, Westmere"""
)
JOBS = split_list(
    """baker, bookbinder, bridge engineer, carpenter, clockmaker, doctor, gardener, glass blower, judge,
    lighthouse keeper, map maker, miller, night nurse, painter, piano tuner, pilot, printer,
    school teacher, ship captain, tailor"""
)
OBJECTS = split_list(
    """blue umbrella, brass compass, folding chair, glass marble, gold watch, green kite, iron key,
    leather satchel, old camera, paper lantern, pocket mirror, red bicycle, silver whistle,
    stone chess set, tin drum, wooden flute"""
)
ANIMALS = split_list(
    """black crow, blind owl, brown pony, grey cat, lame donkey, small tortoise, spotted dog, tame fox,
    three legged cat, white rabbit, wild goose, young goat"""
)
MONTHS = split_list(
    """January, February, March, April, May, June, July, August, September, October, November, December"""
)
DATES = [f"{day} {month} {year}" for year in range(1900, 1930) for month in MONTHS for day in range(1, 29)]
ASIDES = [
    "The winter was long that year.",
    "Nobody remembers who told this first.",
    "The newspapers wrote little about it.",
    "Some of them met once, at a wedding.",
]


@dataclass(frozen=True)
class Relation:
    """One kind of fact: its values, how to state it, how to ask for the value, how to ask for the person."""

    values: list[str]
    statements: list[str]
    value_questions: list[str]
    name_questions: list[str]


RELATIONS = [
    Relation(
        TOWNS,
        [
            "{name} lives in {value}.",
            "The house of {name} stands in {value}.",
            "In {value}, everyone knows {name}.",
        ],
        ["Where does {name} live?", "In which town is the home of {name}?"],
        ["Who lives in {value}?"],
    ),
    Relation(
        TOWNS,
        [
            "{name} was born in {value}.",
            "{name} comes from {value}.",
            "It was in {value} that {name} was born.",
        ],
        ["Where was {name} born?", "Which town does {name} come from?"],
        ["Who was born in {value}?"],
    ),
    Relation(
        DATES,
        [
            "{name} was born on {value}.",
            "On {value}, {name} came into the world.",
            "The birthday of {name} is {value}.",
        ],
        ["When was {name} born?", "On which day was {name} born?"],
        ["Who was born on {value}?"],
    ),
    Relation(
        JOBS,
        [
            "{name} works as a {value}.",
            "By trade, {name} is a {value}.",
            "As a {value}, {name} gets up early.",
        ],
        ["What is the job of {name}?", "What does {name} work as?"],
        ["Who works as a {value}?"],
    ),
    Relation(
        OBJECTS,
        [
            "{name} never leaves without the {value}.",
            "The {value} belongs to {name}.",
            "{name} is proud of the {value}.",
        ],
        ["What belongs to {name}?", "Which thing does {name} own?"],
        ["Who owns the {value}?"],
    ),
    Relation(
        ANIMALS,
        [
            "{name} looks after a {value}.",
            "A {value} follows {name} everywhere.",
            "At home, {name} keeps a {value}.",
        ],
        ["Which animal does {name} keep?", "What kind of pet has {name}?"],
        ["Who keeps a {value}?"],
    ),
]


@dataclass(frozen=True)
class Fact:
    """One fact about one person."""

    relation: Relation
    name: str
    value: str


@dataclass(frozen=True)
class Example:
    """A question, the passage that answers it, and the characters of the passage that are the answer."""

    question: str
    context: str
    answer_start: int
    answer_end: int

    @property
    def answer(self) -> str:
        """The answer's text."""
        return self.context[self.answer_start : self.answer_end]


def generate_examples(
    num_train: int, num_held_out: int, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Training and held-out examples about different people, equal for equal seeds.

    Args:
        num_train: How many examples to train on.
        num_held_out: How many to evaluate on; no full name of these appears in training.
        seed: Decides the people, the facts and the questions.
    """
    rng = random.Random(seed)
    people = [(first, last) for first in FIRST_NAMES for last in LAST_NAMES]
    rng.shuffle(people)
    train_people, held_out_people = people[: len(people) * 4 // 5], people[len(people) * 4 // 5 :]
    train = [ask_about(invent_facts(train_people, rng), rng) for _ in range(num_train)]
    return train, [ask_about(invent_facts(held_out_people, rng), rng) for _ in range(num_held_out)]


def invent_facts(people: list[tuple[str, str]], rng: random.Random) -> list[Fact]:
    """The same two relations for three people, two of whom share a first or a last name.

    The shared name makes the reader compare whole names: half a name does not tell the person.
    """
    (first, last), other = rng.sample(people, 2)
    alike = [person for person in people if (person[0] == first) != (person[1] == last) and person != other]
    names = [" ".join(person) for person in ((first, last), rng.choice(alike), other)]
    facts = []
    for relation in rng.sample(RELATIONS, 2):
        values = rng.sample(relation.values, len(names))
        facts += [Fact(relation, name, value) for name, value in zip(names, values, strict=True)]
    return facts


def ask_about(facts: list[Fact], rng: random.Random) -> Example:
    """A passage that states `facts` in random order and wording, and a question about one of them."""
    asked = rng.choice(facts)
    asks_who = rng.random() < 0.25
    question = rng.choice(asked.relation.name_questions if asks_who else asked.relation.value_questions)
    answer = asked.name if asks_who else asked.value

    context, start = rng.choice(ASIDES), 0
    for fact in rng.sample(facts, len(facts)):
        sentence = rng.choice(fact.relation.statements).format(name=fact.name, value=fact.value)
        if fact is asked:
            start = len(context) + 1 + sentence.index(answer)
        context = f"{context} {sentence}"
    return Example(question.format(name=asked.name, value=asked.value), context, start, start + len(answer))


class WordTokenizer:
    """Words and punctuation marks as numbers, with the characters that each came from.

    Args:
        texts: Every word in these is known; any other becomes `[UNK]`.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        words = {text[start:end] for text in texts for start, end in self.find_words(text)}
        self.words = ["[PAD]", "[UNK]", "[SEP]", *sorted(words)]
        self.ids = {word: index for index, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @staticmethod
    def find_words(text: str) -> list[tuple[int, int]]:
        """Where every word of `text` starts and ends; the end is exclusive."""
        return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]

    def encode(self, text: str) -> list[int]:
        """The number of every word of `text`."""
        return [self.ids.get(text[start:end], UNKNOWN) for start, end in self.find_words(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`: words with a space between them, but no space before a punctuation mark."""
        words = [self.words[index] for index in ids if index not in (PADDING, SEPARATOR)]
        return re.sub(r" (?=[.,?])", "", " ".join(words))


class FactsDataset(Dataset[dict[str, Tensor]]):
    """Examples as `question [SEP] context`, with the answer's first and last token.

    Args:
        examples: What `generate_examples` made.
        tokenizer: Turns words into numbers.
        max_tokens: Length that every row is padded to; a longer example raises.
    """

    def __init__(self, examples: list[Example], tokenizer: WordTokenizer, max_tokens: int = 96) -> None:
        self.examples = examples
        self.tokenizer = tokenizer
        self.rows = [self.encode(example, max_tokens) for example in examples]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.rows[index]

    @property
    def answers(self) -> list[str]:
        """The right answer to every question."""
        return [example.answer for example in self.examples]

    def encode(self, example: Example, max_tokens: int) -> dict[str, Tensor]:
        """One example under the names that the model's forward takes."""
        question = [*self.tokenizer.encode(example.question), SEPARATOR]
        context = self.tokenizer.encode(example.context)
        num_tokens = len(question) + len(context)
        if num_tokens > max_tokens:
            raise ValueError(
                f"An example has {num_tokens} tokens, but max_tokens is {max_tokens}. Set max_tokens higher."
            )
        num_padding = max_tokens - num_tokens
        starts, ends = zip(*self.tokenizer.find_words(example.context), strict=True)
        row = {
            "input_ids": question + context + [PADDING] * num_padding,
            "token_type_ids": [0] * len(question) + [1] * len(context) + [0] * num_padding,
            "attention_mask": [1] * num_tokens + [0] * num_padding,
            "start_positions": len(question) + starts.index(example.answer_start),
            "end_positions": len(question) + ends.index(example.answer_end),
        }
        return {name: torch.tensor(values) for name, values in row.items()}

    def read_spans(self, spans: Iterable[Sequence[int]], rows: Iterable[int]) -> list[str]:
        """The text between a first and a last token, for one such pair per row."""
        return [self.read_span(self.examples[row], *span) for row, span in zip(rows, spans, strict=True)]

    def read_span(self, example: Example, first: int, last: int) -> str:
        """The characters of the context from token `first` to token `last` of the example's row."""
        words = self.tokenizer.find_words(example.context)
        num_before = len(self.tokenizer.find_words(example.question)) + 1
        return example.context[words[first - num_before][0] : words[last - num_before][1]]
