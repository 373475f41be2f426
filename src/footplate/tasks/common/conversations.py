"""Conversations as tokens, and which of these the assistant says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from footplate.tasks.common.blocks import IGNORED
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Batch, Row

Messages = list[dict[str, Any]]

ASSISTANT = "assistant"
MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
# for `--chat_template chatml`
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>")
ADD_MARKS = (
    "Put {% generation %} and {% endgeneration %} around the assistant's words in the template, and give it "
    "with --chat_template FILE"
)


class TemplateProblem(ValueError):
    """Why a template cannot say which words are the assistant's."""


def read_template(given: str | None) -> str | None:
    """The template in a file, or the one that is named `chatml`."""
    if given is None or given == "chatml":
        return CHATML if given else None
    if not Path(given).is_file():
        raise TaskError(f"--chat_template {given}: there is no such file. Give a file, or the word chatml.")
    return Path(given).read_text(encoding="utf-8")


def give_template(tokenizer: Any, template: str | None) -> str | None:
    """Set the template, if there is one, and something to pad with; return the template it has now."""
    if template is not None:
        tokenizer.chat_template = template
    if template == CHATML:  # one token for each mark; the last one of an answer ends what is generated
        tokenizer.add_tokens(list(CHATML_TOKENS), special_tokens=True)
        tokenizer.eos_token = CHATML_TOKENS[1]
    if tokenizer.pad_token is None:  # padding carries no loss, and nobody looks at it
        tokenizer.pad_token = tokenizer.eos_token
    found: str | None = tokenizer.chat_template
    return found


# ---- rows: `messages`, or `prompt` and `completion`, or `text` ----


def find_column(names: Sequence[str] | None, source: str) -> str:
    """The column that conversations begin with."""
    found = [name for name in ("messages", "prompt", "text") if name in (names or [])]
    if not found:
        raise TaskError(
            f"{source} has the columns {list(names or [])}. It must have 'messages', 'prompt' and "
            "'completion', or 'text'."
        )
    return found[0]


def messages_of(row: Row) -> tuple[Messages, int] | None:
    """The conversation of a row and its first message that counts; None if the row is plain text."""
    if "messages" in row:
        return plain_messages(row["messages"] or []), 0
    if isinstance(row.get("prompt"), list):
        prompt, completion = (plain_messages(row.get(name) or []) for name in ("prompt", "completion"))
        return prompt + completion, len(prompt)
    return None


def plain_messages(messages: Sequence[Any]) -> Messages:
    """Messages without the fields that tables fill up with nothing."""
    return [{name: value for name, value in message.items() if value is not None} for message in messages]


def find_bad_row(tokenizer: Any, row: Row, needs_answer: bool) -> str | None:
    """Why a row cannot be used: no conversation, no assistant, or a template that does not fit.

    Args:
        tokenizer: It has the template.
        row: A row.
        needs_answer: The row must hold what the assistant says.
    """
    found = messages_of(row)
    if found is None:
        names = ("prompt", "completion") if "prompt" in row and needs_answer else (text_column(row),)
        missing = [name for name in names if not isinstance(row.get(name), str)]
        return f"there is no text in {missing[0]!r}" if missing else None
    problem = find_bad_message(found[0], needs_answer)
    if problem is not None:
        return problem
    if tokenizer.chat_template is None:
        return "the tokenizer has no chat template. Give one with --chat_template FILE, or chatml"
    try:
        if MARKS.search(tokenizer.chat_template):
            render(tokenizer, found[0], row.get("tools"))
        else:
            find_spans(tokenizer, *found, row.get("tools"))
    except TemplateProblem as error:
        return str(error)
    return None


def text_column(row: Row) -> str:
    """The column that a row of plain text begins with."""
    return "prompt" if "prompt" in row else "text"


def texts_of_row(tokenizer: Any, row: Row) -> list[str]:
    """What a tokenizer can learn from a row."""
    found = messages_of(row)
    if found is not None:
        return [render(tokenizer, found[0], row.get("tools"))]
    return [row[name] for name in (text_column(row), "completion") if isinstance(row.get(name), str)]


def tokens_of_row(tokenizer: Any, row: Row) -> tuple[list[int], list[bool]]:
    """The tokens of a row, and whether each is to be learned."""
    found = messages_of(row)
    if found is not None:
        return tokens_of_messages(tokenizer, *found, row.get("tools"))
    prompt = row.get("prompt") or ""
    text = prompt + str((row.get("completion") if "prompt" in row else row["text"]) or "")
    text += tokenizer.eos_token or ""
    return tokens_of_text(tokenizer, text, [(len(prompt), len(text))])


def prompt_of_row(tokenizer: Any, row: Row) -> list[int]:
    """The tokens up to where the assistant is to answer."""
    found = messages_of(row)
    if found is None:
        return list(tokenizer(row[text_column(row)])["input_ids"])
    messages = found[0][: found[1]] or found[0]
    if messages[-1]["role"] == ASSISTANT:  # what it should say
        messages = messages[:-1]
    text = render(tokenizer, messages, row.get("tools"), asks=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def find_turn_ends(tokenizer: Any) -> list[int]:
    """The special token that ends what the assistant says, if the template has one."""
    if tokenizer.chat_template is None:
        return []
    said = "..."
    messages = [{"role": "user", "content": said}, {"role": ASSISTANT, "content": said}]
    text = render(tokenizer, messages)
    after = tokenizer(text[text.rindex(said) + len(said) :], add_special_tokens=False)["input_ids"]
    added = tokenizer.added_tokens_decoder
    return [token for token in after[:1] if token in added and added[token].special]


def keep_labelled(rows: Batch) -> Batch:
    """The rows in which something is to be learned; others were cut before the assistant speaks."""
    kept = [index for index, labels in enumerate(rows["labels"]) if any(id != IGNORED for id in labels)]
    return {name: [values[index] for index in kept] for name, values in rows.items()}


# ---- messages ----


def find_bad_message(messages: Any, needs_answer: bool) -> str | None:
    """Why a list of messages is no conversation."""
    if not isinstance(messages, list) or not messages:
        return "there are no messages"
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return f"message {number} has no 'role'"
        if message.get("content") is None and not message.get("tool_calls"):
            return f"message {number} has no 'content'"
    if needs_answer and all(message["role"] != ASSISTANT for message in messages):
        return "no message has the role 'assistant', so that there is nothing to learn from it"
    return None


def render(tokenizer: Any, messages: Messages, tools: Any = None, asks: bool = False) -> str:
    """The text of a conversation; if `asks`, up to where the assistant is to speak."""
    try:
        text = tokenizer.apply_chat_template(
            messages, tools=tools or None, tokenize=False, add_generation_prompt=asks
        )
    except Exception as error:  # a template is a program of its own
        raise TemplateProblem(f"the chat template cannot render it: {error}") from error
    return str(text)


def find_spans(
    tokenizer: Any, messages: Messages, first: int = 0, tools: Any = None
) -> tuple[str, list[tuple[int, int]]]:
    """The text of a conversation and where the assistant speaks, for a template without marks.

    Each of the assistant's messages is what a text gains by it. That is right only if the template renders
    the beginning of a conversation as it renders it within the whole, which is checked.

    Args:
        tokenizer: It has the template.
        messages: The conversation.
        first: The first message whose words count.
        tools: What the assistant may call.
    """
    whole, spans = render(tokenizer, messages, tools), []
    for number, message in enumerate(messages):
        if message["role"] != ASSISTANT or number < first:
            continue
        before = render(tokenizer, messages[:number], tools, asks=True)
        until = render(tokenizer, messages[: number + 1], tools).rstrip()
        start = len(before)
        if before == render(tokenizer, messages[:number], tools):  # it knows no prompt: skip the role's name
            start = until.find(str(message.get("content") or "").strip(), start)
        if start < 0 or not until.startswith(before) or not whole.startswith(until):
            raise TemplateProblem(
                "the chat template has no marks of the assistant's words, and changes earlier messages when "
                f"later ones follow, so that they cannot be found. {ADD_MARKS}"
            )
        spans.append((start, len(until)))
    return whole, spans


def tokens_of_messages(
    tokenizer: Any, messages: Messages, first: int = 0, tools: Any = None
) -> tuple[list[int], list[bool]]:
    """The tokens of a conversation, and whether the assistant says each.

    Args:
        tokenizer: It has the template.
        messages: The conversation.
        first: The first message whose words count.
        tools: What the assistant may call.
    """
    if not MARKS.search(tokenizer.chat_template):
        return tokens_of_text(tokenizer, *find_spans(tokenizer, messages, first, tools), is_complete=True)
    made = tokenizer.apply_chat_template(
        messages, tools=tools or None, return_dict=True, return_assistant_tokens_mask=True
    )
    is_said = [bool(mark) for mark in made["assistant_masks"]]
    if first:
        text = render(tokenizer, messages[:first], tools)
        num_before = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        is_said[:num_before] = [False] * num_before
    return list(made["input_ids"]), is_said


def tokens_of_text(
    tokenizer: Any, text: str, spans: Sequence[tuple[int, int]], is_complete: bool = False
) -> tuple[list[int], list[bool]]:
    """The tokens of a text, and whether each begins within one of the spans.

    Args:
        tokenizer: A fast one, which knows where tokens begin.
        text: The text.
        spans: Places of characters.
        is_complete: The text holds all special tokens already.
    """
    made = tokenizer(text, add_special_tokens=not is_complete, return_offsets_mapping=True, verbose=False)
    is_said = [
        start < end and any(begin < end and start < until for begin, until in spans)
        for start, end in made["offset_mapping"]
    ]
    return list(made["input_ids"]), is_said


def labels_of(tokens: Sequence[int], is_said: Sequence[bool]) -> list[int]:
    """The tokens that carry loss; the others are left out of it."""
    return [token if counts else IGNORED for token, counts in zip(tokens, is_said, strict=True)]
