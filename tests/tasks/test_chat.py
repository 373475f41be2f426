"""Conversations: what carries loss, what is learned, adapters, packing, and what is wrong with rows."""

import json
import random
import sys

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from footplate.tasks.common.conversations import (
    CHATML,
    find_spans,
    find_turn_ends,
    give_template,
    tokens_of_messages,
)
from tasks import small
from tasks.running_text import COMMON, job_of

LLAMA = (
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,num_key_value_heads=2,intermediate_size=64,"
    "max_position_embeddings=256,initializer_range=0.1"
)
CAPITALS = {"france": "paris", "italy": "rome", "japan": "tokyo", "spain": "madrid", "peru": "lima"}
UNMARKED = CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", "")
# a template that drops what the assistant said before: words cannot be found by rendering the beginning
FORGETFUL = (
    "{% for message in messages %}{% if message['role'] != 'assistant' or loop.last %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def conversation(country, *more):
    question = {"role": "user", "content": f"capital of {country}?"}
    return [question, {"role": "assistant", "content": CAPITALS.get(country, "unknown")}, *more]


def conversations(count, seed=0):
    """Questions of one or two turns."""
    chance, rows = random.Random(seed), []
    for _ in range(count):
        messages = [
            m for name in chance.choices(list(CAPITALS), k=chance.randint(1, 2)) for m in conversation(name)
        ]
        rows.append({"messages": messages})
    return rows


def from_scratch():
    sizes = ["--model_type", "llama", "--config_overrides", LLAMA, "--train_tokenizer", "--vocab_size", "400"]
    return [*sizes, "--chat_template", "chatml"]


def flags(tmp_path, rows, *words, start=None, name="out"):
    train_file = small.write_lines(tmp_path / "train.jsonl", rows)
    files = ("--train_file", train_file, "--validation_file", train_file, "--output_dir", tmp_path / name)
    options = ("--learning_rate", "1e-2", "--per_device_train_batch_size", 8, "--max_length", 64)
    return [*(start or from_scratch()), *files, *options, "--do_train", "--do_eval", *COMMON, *words]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a small model that has learned nothing, and its tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    small.run("chat", *flags(folder, conversations(60), "--max_steps", 1, "--learning_rate", 0, name="model"))
    return folder / "model"


def tokenizer_with(base, template):
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = template
    return tokenizer


def said(tokenizer, messages, first=0):
    tokens, is_said = tokens_of_messages(tokenizer, messages, first)
    return tokenizer.decode([token for token, counts in zip(tokens, is_said, strict=True) if counts])


# ---- what carries loss ----


@pytest.mark.parametrize("template", [CHATML, UNMARKED])
def test_the_assistants_words_alone_carry_loss(base, template):
    messages = [*conversation("france"), *conversation("peru")]
    tokenizer = tokenizer_with(base, template)
    assert said(tokenizer, messages) == "paris<|im_end|>lima<|im_end|>"
    assert said(tokenizer, messages, first=2) == "lima<|im_end|>"


def test_a_template_without_a_prompt_of_its_own_is_searched_for_the_words(base):
    template = (
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    )
    assert said(tokenizer_with(base, template), conversation("france")) == "paris"


def test_a_template_that_cannot_be_searched_names_the_remedy(tmp_path, base):
    file = tmp_path / "template.jinja"
    file.write_text(FORGETFUL)
    rows = [
        {"messages": conversation("france")},
        {"messages": [*conversation("peru"), *conversation("italy")]},
    ]
    start = ["--model_name_or_path", base, "--chat_template", file]
    with pytest.raises(
        TaskError, match=r"train\.jsonl: 1 of 2 rows.*row 2: .*\{% generation %\}.*--chat_template"
    ):
        small.run("chat", *flags(tmp_path, rows, start=start))
    text, spans = find_spans(tokenizer_with(base, FORGETFUL), rows[0]["messages"])
    assert [text[begin:end] for begin, end in spans] == ["paris"]


@pytest.mark.parametrize(
    ("row", "learned"),
    [
        ({"prompt": "capital of peru? ", "completion": "lima"}, "lima<|im_end|>"),
        ({"text": "lima is in peru"}, "lima is in peru<|im_end|>"),
        ({"prompt": conversation("peru")[:1], "completion": conversation("peru")[1:]}, "lima<|im_end|>"),
        (
            {
                "prompt": [*conversation("japan"), *conversation("peru")[:1]],
                "completion": conversation("peru")[1:],
            },
            "lima<|im_end|>",
        ),
    ],
)
def test_each_form_of_rows_is_read(tmp_path, base, row, learned):
    job = job_of("chat", *flags(tmp_path, [row] * 3, start=["--model_name_or_path", base]))
    made, tokenizer = job.features["train"][0], job.recipe.processor
    assert tokenizer.decode([label for label in made["labels"] if label != -100]) == learned
    assert len(made["labels"]) == len(made["input_ids"])


# ---- what is learned ----


SHORT = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}"
    "{% else %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"
)


def test_an_answer_ends_where_the_template_ends_a_turn(base):
    tokenizer = AutoTokenizer.from_pretrained(base)
    give_template(tokenizer, SHORT)
    assert find_turn_ends(tokenizer) == [tokenizer.eos_token_id]
    give_template(tokenizer, CHATML)
    marks = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    text = "<|im_start|>assistant\nlima<|im_end|>\n"
    assert [token for token in tokenizer(text)["input_ids"] if token in marks] == marks  # one token each
    assert find_turn_ends(tokenizer) == [tokenizer.eos_token_id] == marks[1:]


@pytest.mark.parametrize("packing", [(), ("--packing",)])
def test_answers_are_learned_with_and_without_packing(tmp_path, packing):
    template = tmp_path / "template.jinja"
    template.write_text(SHORT)
    test_file = small.write_lines(tmp_path / "test.jsonl", [{"messages": conversation(n)} for n in CAPITALS])
    words = ("--chat_template", template, "--do_predict", "--test_file", test_file, "--max_steps", 120)
    results = small.run("chat", *flags(tmp_path, conversations(80), *words, *packing))
    assert results["eval_accuracy"] > 0.95  # the same answer for all: 0.6, as half of the tokens are ends
    assert results["perplexity"] < 1.2
    assert (results["train_samples"] < 40) if packing else (results["train_samples"] == 80)
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["answer"] for line in lines] == list(CAPITALS.values())  # chance: one of five

    answerer = load_answerer(str(tmp_path / "out"))
    typed = ["capital of peru?", json.dumps({"messages": conversation("japan")[:1]})]
    assert list(answer_lines(answerer, typed)) == [{"answer": "lima"}, {"answer": "tokyo"}]


def test_losses_are_those_of_transformers_to_the_last_bit(tmp_path, base):
    from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments, set_seed

    rows = conversations(40)
    words = ("--num_train_epochs", 2, "--logging_steps", 1, "--seed", 5)
    small.run("chat", *flags(tmp_path, rows, *words, start=["--model_name_or_path", base]))

    set_seed(5)
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    features = []
    for row in rows:
        options = {"return_dict": True, "return_assistant_tokens_mask": True}
        made = tokenizer.apply_chat_template(row["messages"], **options)
        pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
        labels = [token if is_said else -100 for token, is_said in pairs]
        features.append({"input_ids": made["input_ids"][:64], "labels": labels[:64]})
    args = TrainingArguments(
        output_dir=str(tmp_path / "theirs"),
        learning_rate=1e-2,
        per_device_train_batch_size=8,
        num_train_epochs=2,
        logging_steps=1,
        seed=5,
        report_to="none",
        use_cpu=True,
    )
    trainer = Trainer(
        model, args, train_dataset=features, data_collator=DataCollatorForTokenClassification(tokenizer)
    )
    trainer.train()
    trainer.save_state()
    assert small.losses_in(tmp_path / "out") == small.losses_in(tmp_path / "theirs")


# ---- adapters ----


def test_an_adapter_is_trained_and_saved_alone(tmp_path, base):
    from safetensors.torch import load_file

    words = (
        "--use_peft",
        "--lora_r",
        4,
        "--lora_target_modules",
        "q_proj",
        "v_proj",
        "--num_train_epochs",
        3,
    )
    results = small.run(
        "chat", *flags(tmp_path, conversations(40), *words, start=["--model_name_or_path", base])
    )
    out = tmp_path / "out"
    names = set(load_file(out / "adapter_model.safetensors"))
    assert names
    assert all("lora_" in name for name in names)
    assert not (out / "model.safetensors").exists()
    assert json.loads((out / "adapter_config.json").read_text())["r"] == 4
    before = small.run(
        "chat",
        *flags(tmp_path, conversations(40), start=["--model_name_or_path", base], name="no"),
        "--do_train",
        "false",
    )
    assert results["eval_loss"] < before["eval_loss"] - 0.1

    answerer = load_answerer(str(out))
    weights = {name for name, _ in answerer.model.named_parameters() if "lora_" in name}
    assert len(weights) == len(names)
    assert answerer.answer(answerer.read_line("capital of peru?"))[0]["answer"]


def test_a_merged_adapter_gives_a_whole_model_of_the_same_loss(tmp_path, base):
    words = ("--use_peft", "--lora_target_modules", "all-linear", "--merge_adapter", "--num_train_epochs", 3)
    start = ["--model_name_or_path", base]
    merged = small.run("chat", *flags(tmp_path, conversations(40), *words, start=start))
    apart = small.run(
        "chat", *flags(tmp_path, conversations(40), *words[:3], *words[4:], start=start, name="two")
    )
    assert abs(merged["eval_loss"] - apart["eval_loss"]) < 1e-5
    out = tmp_path / "out"
    assert not (out / "adapter_model.safetensors").exists()
    names = AutoModelForCausalLM.from_pretrained(out).state_dict()
    assert set(names) == set(AutoModelForCausalLM.from_pretrained(base).state_dict())
    again = small.run(
        "chat",
        *flags(tmp_path, conversations(40), start=["--model_name_or_path", out], name="again"),
        "--do_train",
        "false",
    )
    assert abs(again["eval_loss"] - merged["eval_loss"]) < 1e-6


def test_four_bits_name_the_package_that_is_missing(tmp_path, base, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setattr("footplate.tasks.common.adapters.find_spec", lambda name: name == "peft" or None)
    start = ["--model_name_or_path", base, "--use_peft", "--load_in_4bit"]
    with pytest.raises(TaskError, match="--load_in_4bit needs the package bitsandbytes: pip install"):
        small.run("chat", *flags(tmp_path, conversations(4), start=start))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--merge_adapter"], "no adapter to merge.*--use_peft"),
        (["--use_peft"], "random weights would be lost.*--merge_adapter"),
        (["--use_peft", "--merge_adapter", "--lora_target_modules", "nowhere"], "--lora_target_modules"),
        (["--chat_template", "nowhere.jinja"], "there is no such file"),
    ],
)
def test_flags_that_cannot_work_are_refused(tmp_path, words, message):
    with pytest.raises(TaskError, match=message):
        small.run("chat", *flags(tmp_path, conversations(4), *words))


# ---- what is wrong with rows ----


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "there are no messages"),
        ([{"role": "user", "content": "hello"}], "no message has the role 'assistant'"),
        (
            [{"role": "user", "content": None}, {"role": "assistant", "content": "x"}],
            "message 1 has no 'content'",
        ),
    ],
)
def test_a_row_that_is_no_conversation_is_named(tmp_path, messages, message):
    rows = [*conversations(3), {"messages": messages}]
    with pytest.raises(TaskError, match=rf"train\.jsonl: 1 of 4 rows .*row 4: {message}"):
        small.run("chat", *flags(tmp_path, rows))
    results = small.run("chat", *flags(tmp_path, rows, "--skip_bad_rows", "--max_steps", 1))
    assert results["train_samples"] == 3


def test_a_tokenizer_without_a_template_names_the_remedy(tmp_path):
    start = from_scratch()[:-2]
    with pytest.raises(TaskError, match=r"no chat template.*--chat_template FILE"):
        small.run("chat", *flags(tmp_path, conversations(3), start=start))


def test_rows_cut_before_the_answer_are_left_out(tmp_path, base):
    long = {"role": "system", "content": "word " * 200}
    rows = [*conversations(3), {"messages": [long, *conversation("peru")]}]
    job = job_of("chat", *flags(tmp_path, rows, start=["--model_name_or_path", base]))
    assert len(job.features["train"]) == 3
    with pytest.raises(
        TaskError, match=r"No row of .*train\.jsonl holds a word of the assistant.*--max_length"
    ):
        small.run("chat", *flags(tmp_path, rows[3:] * 2, start=["--model_name_or_path", base]))


def test_other_columns_are_named(tmp_path):
    with pytest.raises(TaskError, match=r"train\.jsonl has the columns \['question'\].*'messages'"):
        small.run("chat", *flags(tmp_path, [{"question": "why?"}]))
