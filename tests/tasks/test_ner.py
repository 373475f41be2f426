"""Tags of words: entities, parts of speech; files in columns; and what is wrong with rows."""

import json
import random

import pytest
import transformers
from datasets import Dataset
from seqeval.metrics import f1_score

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from footplate.tasks.common.catalog import find_recipe
from footplate.tasks.common.parsing import parse_flags
from footplate.tasks.common.running import build_job
from tasks import original, pretrained, small

PEOPLE, PLACES = ["anna", "boris", "chen", "dilan", "eva"], ["paris", "seoul", "lima", "oslo", "cairo"]
FAMILIES = ["kim", "novak", "ito", "silva"]
OTHERS = ["went", "to", "saw", "from", "and", "then", "with"]


def sentences(count, seed):
    """Sentences with people, who may have two names, and places."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(3):
            filler = chance.choices(OTHERS, k=chance.randint(1, 2))
            words, tags = [*words, *filler], [*tags, *["O"] * len(filler)]
            if chance.random() < 0.5:
                names = [chance.choice(PEOPLE), *chance.sample(FAMILIES, chance.randint(0, 1))]
                words, tags = [*words, *names], [*tags, "B-PER", *["I-PER"] * (len(names) - 1)]
            else:
                words, tags = [*words, chance.choice(PLACES)], [*tags, "B-LOC"]
        rows.append({"tokens": words, "ner_tags": tags})
    return rows


def write_columns(path, rows, separator=" "):
    """Rows as a file in columns."""
    blocks = [
        "".join(f"{word}{separator}{tag}\n" for word, tag in zip(row["tokens"], row["ner_tags"], strict=True))
        for row in rows
    ]
    path.write_text("-DOCSTART- O\n\n" + "\n".join(blocks), encoding="utf-8")
    return path


def train(tmp_path, train_file, validation_file, *words):
    return small.run(
        "ner",
        *small.from_scratch("bert"),
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "5e-3", "--per_device_train_batch_size", 16),
        *("--num_train_epochs", 5, "--report_to", "none", *words),
    )


def test_entities_are_learned_from_lists_of_words(tmp_path):
    results = train(
        tmp_path,
        small.write_lines(tmp_path / "train.json", sentences(160, 0)),
        small.write_lines(tmp_path / "dev.json", sentences(50, 1)),
    )
    assert results["eval_f1"] > 0.9  # chance: below 0.1
    assert {"eval_precision", "eval_recall", "eval_f1", "eval_accuracy"} <= set(results)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["label2id"] == {"B-LOC": 0, "B-PER": 1, "I-PER": 2, "O": 3}


def test_files_in_columns_are_learned_and_predicted(tmp_path):
    rows = sentences(50, 1)
    dev = write_columns(tmp_path / "dev.conll", rows, "\t")
    train_file = write_columns(tmp_path / "train.txt", sentences(160, 0))
    results = train(
        tmp_path,
        train_file,
        dev,
        *("--do_predict", "--test_file", dev, "--return_entity_level_metrics", "--label_all_tokens"),
    )
    assert results["eval_overall_f1"] > 0.9  # chance: below 0.1
    assert results["eval_PER_f1"] > 0.9
    assert results["eval_LOC_number"] > 20
    assert results["eval_samples"] == 50
    assert results["predict_overall_f1"] == results["eval_overall_f1"]
    lines = (tmp_path / "out" / "predictions.txt").read_text().splitlines()
    assert len(lines) == 50
    assert set(" ".join(lines).split()) == {"O", "B-PER", "I-PER", "B-LOC"}


def test_parts_of_speech_are_read_from_csv_and_from_columns(tmp_path):
    rows = sentences(160, 0)
    kinds = {"O": "VERB", "B-PER": "NOUN", "I-PER": "NOUN", "B-LOC": "PROPN"}
    table = [
        {"tokens": str(row["tokens"]), "pos_tags": " ".join(kinds[tag] for tag in row["ner_tags"])}
        for row in rows
    ]
    lines = [
        f"{number}\t{word}\t_\t{kinds[tag]}\t_\t_\t_\t_\t_\t_"
        for row in rows[:40]
        for number, (word, tag) in enumerate(zip(row["tokens"], row["ner_tags"], strict=True), start=1)
    ]
    (tmp_path / "dev.conllu").write_text("# text = ...\n" + "\n".join(lines) + "\n", encoding="utf-8")
    train_file = small.write_csv(tmp_path / "train.csv", table)
    results = train(
        tmp_path, train_file, tmp_path / "dev.conllu", "--task_name", "pos", "--max_seq_length", 64
    )
    assert results["eval_accuracy"] > 0.95  # chance: 0.5
    assert results["eval_samples"] == 1


@pytest.fixture
def finished(tmp_path):
    """A folder with a trained model."""
    train(
        tmp_path,
        small.write_lines(tmp_path / "train.json", sentences(160, 0)),
        small.write_lines(tmp_path / "dev.json", sentences(50, 1)),
    )
    return tmp_path / "out"


def test_answers_are_entities_with_their_words(tmp_path, finished):
    test_file = small.write_lines(
        tmp_path / "test.json", [{"tokens": ["then", "anna", "kim", "went", "to", "lima"]}]
    )
    flags = ["--model_name_or_path", finished, "--test_file", test_file, "--do_predict"]
    recipe = parse_flags(
        find_recipe("ner"), [str(flag) for flag in [*flags, "--output_dir", tmp_path / "new"]]
    )
    job = build_job(recipe)
    output = job.trainer.predict(job.features["test"])
    assert recipe.answers(job.rows["test"], job.features["test"], output) == [
        {
            "entities": [
                {"type": "PER", "text": "anna kim", "words": [1, 2]},
                {"type": "LOC", "text": "lima", "words": [5, 5]},
            ]
        }
    ]
    recipe.save_predictions(job.rows["test"], job.features["test"], output, tmp_path)
    assert (tmp_path / "predictions.txt").read_text() == "O B-PER I-PER O O B-LOC\n"
    answerer = load_answerer(str(finished), str(tmp_path / "later"))
    answers = list(answer_lines(answerer, ["then eva saw oslo"]))
    assert [(found["type"], found["text"]) for found in answers[0]["entities"]] == [
        ("PER", "eva"),
        ("LOC", "oslo"),
    ]


def test_a_model_that_knows_the_tags_keeps_their_order(tmp_path, finished):
    model = transformers.AutoModelForTokenClassification.from_pretrained(finished)
    order = [3, 1, 0, 2]  # another order of the same tags
    names = ["B-LOC", "B-PER", "I-PER", "O"]
    model.config.id2label = {place: names[number] for place, number in enumerate(order)}
    model.config.label2id = {names[number]: place for place, number in enumerate(order)}
    model.classifier.weight.data = model.classifier.weight.data[order]
    model.classifier.bias.data = model.classifier.bias.data[order]
    model.save_pretrained(tmp_path / "turned")
    transformers.AutoTokenizer.from_pretrained(finished).save_pretrained(tmp_path / "turned")
    results = small.run(
        "ner",
        *("--model_name_or_path", tmp_path / "turned", "--do_eval", "--output_dir", tmp_path / "new"),
        *("--validation_file", small.write_lines(tmp_path / "dev.json", sentences(50, 1))),
        *("--report_to", "none"),
    )
    assert results["eval_f1"] == small.results_of(finished)["eval_f1"]


def test_the_run_is_that_of_the_trainer_of_transformers(tmp_path):
    rows, dev = sentences(60, 0), sentences(20, 1)
    folder = pretrained.save_model(
        tmp_path / "model", "bert", "AutoModel", [" ".join(row["tokens"]) for row in rows]
    )
    mine = small.run(
        "ner",
        *original.flags_of(folder, tmp_path, *original.FLAGS, "--evaluation_strategy", "epoch"),
        *("--train_file", small.write_lines(tmp_path / "train.json", rows)),
        *("--validation_file", small.write_lines(tmp_path / "dev.json", dev), "--label_all_tokens"),
    )

    names = sorted({tag for row in rows for tag in row["ner_tags"]})
    tokenizer, model = original.load(folder, "AutoModelForTokenClassification", num_labels=len(names))

    def tokenize(batch):
        made = tokenizer(batch["tokens"], truncation=True, is_split_into_words=True)
        made["labels"] = []
        for index, tags in enumerate(batch["ner_tags"]):
            labels, last = [], None
            for place in made.word_ids(index):
                if place is None:
                    labels.append(-100)
                else:
                    tag = tags[place] if place != last else tags[place].replace("B-PER", "I-PER")
                    labels.append(names.index(tag))
                last = place
            made["labels"].append(labels)
        return made

    def measure(prediction):
        found, right = [], []
        for numbers, labels in zip(prediction.predictions.argmax(-1), prediction.label_ids, strict=True):
            found.append([names[n] for n, label in zip(numbers, labels, strict=True) if label != -100])
            right.append([names[label] for label in labels if label != -100])
        return {"f1": f1_score(right, found)}

    sets = [
        Dataset.from_list(part).map(tokenize, batched=True, remove_columns=["tokens", "ner_tags"])
        for part in (rows, dev)
    ]
    collator = transformers.DataCollatorForTokenClassification(tokenizer)
    trainer = original.train(tmp_path, model, tokenizer, sets, collator, measure, eval_strategy="epoch")
    original.check_same_figures(tmp_path, "loss", "eval_loss", "eval_f1", "grad_norm", "learning_rate")
    assert mine["eval_f1"] == trainer.evaluate()["eval_f1"]


def test_bad_rows_are_named_with_file_and_row(tmp_path):
    rows = sentences(20, 0)
    few = {"tokens": ["anna", "went"], "ner_tags": ["B-PER"]}
    new = {"tokens": ["anna", "went"], "ner_tags": ["B-PER", "B-TIME"]}
    train_file = small.write_lines(tmp_path / "train.json", rows)
    dev = small.write_lines(tmp_path / "dev.json", [*rows[:3], few, new])
    with pytest.raises(
        TaskError, match=r"dev\.json: 2 of 5 rows .* row 4: there are 2 words but 1 tags; row 5"
    ):
        train(tmp_path, train_file, dev)
    results = train(tmp_path, train_file, dev, "--skip_bad_rows", "--num_train_epochs", 1)
    assert results["eval_samples"] == 3


def test_a_missing_column_a_short_line_and_an_empty_file_are_named(tmp_path):
    train_file = small.write_lines(tmp_path / "train.json", sentences(20, 0))
    with pytest.raises(TaskError, match=r"train\.json has no column 'labels'.*--label_column_name"):
        train(tmp_path, train_file, train_file, "--label_column_name", "labels")
    (tmp_path / "dev.conll").write_text("anna B-PER\nwent\n")
    with pytest.raises(TaskError, match=r"dev\.conll: line 2 has 1 columns, the lines before it have 2"):
        train(tmp_path, train_file, tmp_path / "dev.conll")
    (tmp_path / "dev.conll").write_text("-DOCSTART- O\n\n")
    with pytest.raises(TaskError, match=r"dev\.conll: there are no sentences"):
        train(tmp_path, train_file, tmp_path / "dev.conll")


@pytest.mark.slow
def test_entities_of_real_texts_are_learned_from_a_pretrained_model(tmp_path):
    data, model = pretrained.find_data("ner/wnut17"), pretrained.find_minilm()
    results = small.run(
        "ner",
        *("--model_name_or_path", model, "--output_dir", tmp_path / "out", "--do_train", "--do_eval"),
        *("--train_file", data / "train.jsonl", "--validation_file", data / "validation.jsonl"),
        *("--max_seq_length", 48, "--max_eval_samples", 100, "--learning_rate", "3e-4"),
        *("--max_train_samples", 400, "--num_train_epochs", 2, "--report_to", "none"),
    )
    assert results["eval_f1"] > 0.1  # chance: 0.0
