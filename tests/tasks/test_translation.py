"""Translations: what is learned, measured and written; languages; and what is wrong with rows."""

import random

import pytest
import transformers
from datasets import Dataset
from sacrebleu import corpus_bleu

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from tasks import original, pretrained, small

WORDS = [  # what may stand at each place of a sentence
    {"anna": "anne", "boris": "bernd", "chen": "karl"},
    {"sees": "sieht", "has": "hat", "sells": "verkauft"},
    {"red": "rote", "old": "alte", "big": "breite"},
    {"houses": "bauten", "dogs": "hunde", "cars": "wagen"},
]


def sentences(count, seed):
    """Sentences of known words in two languages."""
    chance = random.Random(seed)
    chosen = [[chance.choice(list(words.items())) for words in WORDS] for _ in range(count)]
    return [
        {"translation": {"en": " ".join(en for en, _ in pairs), "de": " ".join(de for _, de in pairs)}}
        for pairs in chosen
    ]


def train(tmp_path, train_file, validation_file, *words):
    return small.run(
        "translation",
        *small.from_scratch("t5"),
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "1e-2", "--per_device_train_batch_size", 16),
        *("--num_train_epochs", 10, "--report_to", "none", *words),
    )


def test_translations_are_learned_measured_and_written(tmp_path):
    dev = small.write_lines(tmp_path / "dev.json", sentences(30, 1))
    results = train(
        tmp_path,
        small.write_lines(tmp_path / "train.json", sentences(200, 0)),
        dev,
        *("--source_lang", "en", "--target_lang", "de", "--predict_with_generate"),
        *("--max_target_length", 16, "--do_predict", "--test_file", dev),
    )
    assert results["eval_bleu"] > 60  # chance: below 5
    assert results["eval_gen_len"] == round(results["eval_gen_len"], 4)
    assert results["predict_bleu"] == results["eval_bleu"]
    written = (tmp_path / "out" / "generated_predictions.txt").read_text().split("\n")
    right = [row["translation"]["de"] for row in sentences(30, 1)]
    assert round(corpus_bleu(written, [right]).score, 4) == results["eval_bleu"]
    answerer = load_answerer(str(tmp_path / "out"), str(tmp_path / "later"))
    answers = answer_lines(answerer, ["chen has old cars"])
    assert list(answers) == [{"translation": "karl hat alte wagen"}]


def test_a_column_for_each_language_serves_too(tmp_path):
    rows = [row["translation"] for row in sentences(200, 0)]
    results = train(
        tmp_path,
        small.write_csv(tmp_path / "train.csv", rows),
        small.write_csv(tmp_path / "dev.csv", rows[:20]),
        *("--source_lang", "de", "--target_lang", "en", "--predict_with_generate", "--max_target_length", 16),
    )
    assert results["eval_bleu"] > 60  # chance: below 5


def test_the_run_is_that_of_the_trainer_of_transformers(tmp_path):
    rows, dev = sentences(40, 0), sentences(8, 1)
    texts = [text for row in rows for text in row["translation"].values()]
    folder = pretrained.save_model(tmp_path / "model", "t5", "AutoModelForSeq2SeqLM", texts)
    mine = small.run(
        "translation",
        *original.flags_of(folder, tmp_path, *original.FLAGS, "--evaluation_strategy", "epoch"),
        *("--train_file", small.write_lines(tmp_path / "train.json", rows)),
        *("--validation_file", small.write_lines(tmp_path / "dev.json", dev), "--save_strategy", "no"),
        *("--source_lang", "en_XX", "--target_lang", "de_DE", "--max_source_length", 32),
        *("--predict_with_generate", "--max_target_length", 12),
    )

    tokenizer, model = original.load(folder, "AutoModelForSeq2SeqLM")

    def tokenize(batch):
        pairs = batch["translation"]
        made = tokenizer([pair["en"] for pair in pairs], max_length=32, truncation=True)
        targets = tokenizer(text_target=[pair["de"] for pair in pairs], max_length=12, truncation=True)
        return {**made, "labels": targets["input_ids"]}

    sets = [
        Dataset.from_list(part).map(tokenize, batched=True, remove_columns=["translation"])
        for part in (rows, dev)
    ]
    settings = {"eval_strategy": "epoch", "save_strategy": "no", "predict_with_generate": True}
    settings |= {"generation_max_length": 12, "generation_num_beams": 1}
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
    original.train(tmp_path, model, tokenizer, sets, collator, **settings)
    original.check_same_figures(tmp_path, "loss", "eval_loss", "grad_norm")
    assert {"eval_bleu", "eval_gen_len", "eval_loss", "eval_samples", "train_loss"} <= set(mine)
    assert (tmp_path / "mine" / "all_results.json").exists()


@pytest.fixture
def mbart(tmp_path):
    """A folder with a small random mBART, whose tokenizer marks languages."""
    kinds = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [(f"▁{word}", -2.0) for words in WORDS for pair in words.items() for word in pair]
    tokenizer = transformers.MBartTokenizer(vocab=[*kinds, *pieces, ("▁", -3.0)])
    config = transformers.MBartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        dropout=0.0,
        init_std=0.1,
        decoder_start_token_id=None,
    )
    transformers.set_seed(0)
    transformers.MBartForConditionalGeneration(config).save_pretrained(tmp_path / "mbart")
    tokenizer.save_pretrained(tmp_path / "mbart")
    return tmp_path / "mbart"


def train_mbart(tmp_path, mbart, *words):
    rows = small.write_lines(tmp_path / "train.json", sentences(200, 0))
    return small.run(
        "translation",
        *("--model_name_or_path", mbart, "--train_file", rows, "--validation_file", rows, "--do_train"),
        *("--do_eval", "--output_dir", tmp_path / "out", "--max_eval_samples", 20, "--learning_rate", "3e-3"),
        *("--per_device_train_batch_size", 16, "--num_train_epochs", 20, "--report_to", "none"),
        *("--predict_with_generate", "--max_target_length", 12, *words),
    )


def test_models_of_several_languages_begin_with_the_target_language(tmp_path, mbart):
    languages = ["--source_lang", "en_XX", "--target_lang", "de_DE"]
    results = train_mbart(tmp_path, mbart, *languages)
    assert results["eval_bleu"] > 60  # chance: below 5
    language = transformers.AutoTokenizer.from_pretrained(mbart).convert_tokens_to_ids("de_DE")
    saved = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert saved.decoder_start_token_id == language
    assert saved.forced_bos_token_id is None
    flags = ["--forced_bos_token", "de_DE", "--num_train_epochs", 1, "--overwrite_output_dir"]
    train_mbart(tmp_path, mbart, *languages, *flags)
    saved = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert saved.forced_bos_token_id == language


def test_languages_that_are_missing_or_unknown_are_named(tmp_path, mbart):
    with pytest.raises(TaskError, match="Name the languages, such as --source_lang en --target_lang de"):
        train_mbart(tmp_path, mbart, "--source_lang", "en_XX")
    with pytest.raises(TaskError, match=r"knows no language 'de_XY'. It knows .*de_DE"):
        train_mbart(tmp_path, mbart, "--source_lang", "en_XX", "--target_lang", "de_XY")


def test_bad_rows_and_columns_are_named(tmp_path):
    rows = sentences(10, 0)
    train_file = small.write_lines(tmp_path / "train.json", rows)
    broken = small.write_lines(tmp_path / "dev.json", [*rows[:3], {"translation": {"en": "dog", "de": None}}])
    flags = ["--source_lang", "en", "--target_lang", "de", "--num_train_epochs", 1]
    with pytest.raises(TaskError, match=r"dev\.json: 1 of 4 rows .* row 4: there is no text in 'de'"):
        train(tmp_path, train_file, broken, *flags)
    assert train(tmp_path, train_file, broken, *flags, "--skip_bad_rows")["eval_samples"] == 3
    table = small.write_csv(tmp_path / "train.csv", [{"en": "dog", "fr": "chien"}])
    with pytest.raises(TaskError, match=r"train\.csv has no column 'de'.*--source_lang and --target_lang"):
        train(tmp_path, table, table, *flags)


@pytest.mark.slow
def test_translations_of_real_texts_are_learned_a_little(tmp_path):
    data = pretrained.find_data("translation/tanaka_en_ja")
    results = small.run(
        "translation",
        *small.from_scratch("t5", vocab_size=2000),
        *("--train_file", data / "train.jsonl", "--validation_file", data / "validation.jsonl"),
        *("--source_lang", "ja", "--target_lang", "en", "--output_dir", tmp_path / "out", "--do_train"),
        *("--do_eval", "--max_source_length", 48, "--max_target_length", 32, "--max_eval_samples", 100),
        *("--learning_rate", "5e-3", "--per_device_train_batch_size", 32, "--num_train_epochs", 2),
        *("--predict_with_generate", "--report_to", "none"),
    )
    assert results["eval_loss"] < 5.2  # random weights: 7.6
