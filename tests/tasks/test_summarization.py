"""Summaries: what is learned, measured and written; and what is wrong with rows."""

import random

import numpy as np
import pytest
import transformers
from datasets import Dataset
from rouge_score.rouge_scorer import RougeScorer

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from footplate.tasks.summarization import split_sentences
from tasks import original, pretrained, small

FRUITS, COLOURS = ["apple", "melon", "grape", "lemon", "mango"], ["red", "green", "blue", "white", "black"]


def texts(count, seed):
    """Texts in which a fruit and a colour matter."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        colour, fruit = chance.choice(COLOURS), chance.choice(FRUITS)
        words = [colour, fruit, *chance.choices(["we", "saw", "it", "then", "was"], k=4)]
        chance.shuffle(words)
        rows.append({"document": " ".join(words), "summary": f"{colour} {fruit}"})
    return rows


def files(tmp_path, *, count=256, dev=40):
    train_file = small.write_lines(tmp_path / "train.json", texts(count, 0))
    return [
        *("--train_file", train_file),
        *("--validation_file", small.write_lines(tmp_path / "dev.json", texts(dev, 1))),
    ]


def train(tmp_path, *words):
    return small.run(
        "summarization",
        *small.from_scratch("t5"),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--learning_rate", "1e-2"),
        *("--per_device_train_batch_size", 16, "--num_train_epochs", 12, "--report_to", "none", *words),
    )


def test_summaries_are_learned_measured_and_written(tmp_path):
    test_file = small.write_lines(tmp_path / "test.json", texts(10, 2))
    results = train(
        tmp_path,
        *files(tmp_path),
        *("--predict_with_generate", "--max_target_length", 8, "--do_predict", "--test_file", test_file),
    )
    assert results["eval_rouge1"] > 80  # chance: 20
    expected = {"eval_rouge1", "eval_rouge2", "eval_rougeL", "eval_rougeLsum", "eval_gen_len", "eval_loss"}
    assert expected <= set(results)
    assert 3 <= results["eval_gen_len"] <= 8
    written = (tmp_path / "out" / "generated_predictions.txt").read_text().split("\n")
    right = [row["summary"] for row in texts(10, 2)]
    assert len(written) == 10
    assert sum(text == target for text, target in zip(written, right, strict=True)) >= 7
    assert small.results_of(tmp_path / "out")["predict_rouge1"] > 80
    answerer = load_answerer(str(tmp_path / "out"), str(tmp_path / "later"))
    assert list(answer_lines(answerer, ["we saw it red then apple"])) == [{"summary": "red apple"}]


def test_without_generation_only_the_loss_is_measured(tmp_path):
    results = train(tmp_path, *files(tmp_path, count=32), "--num_train_epochs", 1)
    assert "eval_loss" in results
    assert not any("rouge" in name for name in results)


@pytest.mark.parametrize("options", [[], ["--pad_to_max_length"], ["--label_smoothing_factor", "0.1"]])
def test_the_run_is_that_of_the_trainer_of_transformers(tmp_path, options):
    # full batches: the original's Seq2SeqTrainer gives the loss of a short one the weight of a full one
    rows, dev = texts(40, 0), texts(8, 1)
    words = [text for row in rows for text in row.values()]
    folder = pretrained.save_model(tmp_path / "model", "t5", "AutoModelForSeq2SeqLM", words)
    mine = small.run(
        "summarization",
        *original.flags_of(folder, tmp_path, *original.FLAGS, "--evaluation_strategy", "epoch"),
        *(*files(tmp_path, count=40, dev=8), "--source_prefix", "summarize: ", *options),
        *("--max_source_length", 32, "--max_target_length", 6, "--val_max_target_length", 8),
        *("--predict_with_generate", "--num_beams", 2),
    )

    tokenizer, model = original.load(folder, "AutoModelForSeq2SeqLM")
    padding = "max_length" if "--pad_to_max_length" in options else False

    def tokenize(batch, length):
        sources = ["summarize: " + text for text in batch["document"]]
        made = tokenizer(sources, max_length=32, padding=padding, truncation=True)
        labels = tokenizer(text_target=batch["summary"], max_length=length, padding=padding, truncation=True)
        pad = tokenizer.pad_token_id
        made["labels"] = [
            [-100 if padding and token == pad else token for token in row] for row in labels["input_ids"]
        ]
        return made

    def measure(prediction):
        pad = tokenizer.pad_token_id
        found, right = (
            tokenizer.batch_decode(np.where(tokens != -100, tokens, pad), skip_special_tokens=True)
            for tokens in (prediction.predictions, prediction.label_ids)
        )
        scorer = RougeScorer(["rouge1"], use_stemmer=True)
        scores = [
            scorer.score(a.strip(), b.strip())["rouge1"].fmeasure for a, b in zip(right, found, strict=True)
        ]
        lengths = [np.count_nonzero(row != pad) for row in prediction.predictions]
        return {"rouge1": round(100 * float(np.mean(scores)), 4), "gen_len": float(np.mean(lengths))}

    sets = [
        Dataset.from_list(part).map(
            tokenize, batched=True, remove_columns=["document", "summary"], fn_kwargs={"length": length}
        )
        for part, length in ((rows, 6), (dev, 8))
    ]
    settings = {"eval_strategy": "epoch", "predict_with_generate": True, "generation_max_length": 8}
    settings["generation_num_beams"] = 2
    settings["label_smoothing_factor"] = 0.1 if options[:1] == ["--label_smoothing_factor"] else 0.0
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = original.train(tmp_path, model, tokenizer, sets, collator, measure, **settings)
    original.check_same_figures(tmp_path, "loss", "eval_loss", "eval_rouge1", "eval_gen_len", "grad_norm")
    assert mine["eval_rouge1"] == trainer.evaluate()["eval_rouge1"]


def test_sentences_are_split_for_the_rouge_of_several(tmp_path):
    assert split_sentences("One. Two? It is 3.5 now!") == "One.\nTwo?\nIt is 3.5 now!"


def test_bad_rows_and_columns_are_named(tmp_path):
    rows = texts(10, 0)
    broken = small.write_lines(tmp_path / "dev.json", [*rows[:3], {"document": "we saw", "summary": ""}])
    train_file = small.write_lines(tmp_path / "train.json", rows)
    flags = ["--train_file", train_file, "--validation_file", broken, "--num_train_epochs", 1]
    with pytest.raises(TaskError, match=r"dev\.json: 1 of 4 rows .* row 4: there is nothing in 'summary'"):
        train(tmp_path, *flags)
    assert train(tmp_path, *flags, "--skip_bad_rows")["eval_samples"] == 3
    with pytest.raises(TaskError, match=r"train\.json has no column 'digest'.*--summary_column"):
        train(tmp_path, *flags, "--summary_column", "digest")


def test_texts_that_are_longer_than_the_model_reads_are_refused_before_training(tmp_path):
    sizes = "d_model=32,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2"
    sizes += ",encoder_ffn_dim=32,decoder_ffn_dim=32,max_position_embeddings=64"
    flags = ["--model_type", "bart", "--config_overrides", sizes, "--train_tokenizer", "--vocab_size", 300]
    flags += [
        *files(tmp_path, count=32),
        "--do_train",
        "--output_dir",
        tmp_path / "out",
        "--report_to",
        "none",
    ]
    with pytest.raises(TaskError, match=r"reads 64 tokens .* --max_source_length 64"):
        small.run("summarization", *flags)
    small.run("summarization", *flags, "--max_source_length", 64, "--num_train_epochs", 1)


@pytest.mark.slow
def test_summaries_of_real_texts_lower_the_loss(tmp_path):
    data = pretrained.find_data("summarization/scitldr")
    results = small.run(
        "summarization",
        *small.from_scratch("t5", vocab_size=2000),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--predict_with_generate"),
        *("--train_file", data / "train.jsonl", "--validation_file", data / "validation.jsonl"),
        *("--max_source_length", 128, "--max_target_length", 32, "--max_eval_samples", 50),
        *("--learning_rate", "5e-3", "--per_device_train_batch_size", 16, "--num_train_epochs", 2),
        *("--report_to", "none"),
    )
    assert results["eval_loss"] < 6.6  # random weights: 7.6
    assert results["eval_rouge1"] > 5
