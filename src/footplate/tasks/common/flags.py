"""The flags that tasks share, beside those of `TrainingArguments`."""

from __future__ import annotations

from dataclasses import dataclass

from footplate import HfArg

# Flags of earlier scripts, and what they are called now; those without a name have no meaning any more.
OLD_FLAGS: dict[str, str | None] = {
    "max_val_samples": "max_eval_samples",
    "max_test_samples": "max_predict_samples",
    "use_auth_token": "token",
    "torch_dtype": "dtype",
    "low_cpu_mem_usage": None,
    "server_ip": None,
    "server_port": None,
}


@dataclass
class ModelFlags:
    """Which model to start from."""

    _argument_group_name = "model"

    model_name_or_path: str | None = HfArg(
        default=None, help="A folder with a pretrained model, or its name on the Hub."
    )
    model_type: str | None = HfArg(
        default=None, help="Start from random weights of this architecture, such as bert or gpt2."
    )
    config_overrides: str | None = HfArg(
        default=None, help="Changes to the configuration, such as n_embd=64,n_layer=2."
    )
    config_name: str | None = HfArg(default=None, help="A configuration, if it is not that of the model.")
    tokenizer_name: str | None = HfArg(default=None, help="A tokenizer, if it is not that of the model.")
    train_tokenizer: bool = HfArg(default=False, help="Train a tokenizer on the texts of the training set.")
    vocab_size: int = HfArg(default=8000, help="Words of a tokenizer that is trained.")
    cache_dir: str | None = HfArg(default=None, help="Where to keep what is downloaded and prepared.")
    use_fast_tokenizer: bool = HfArg(default=True, help="Use the tokenizer's fast form.")
    model_revision: str = HfArg(default="main", help="Branch, tag or commit of the model on the Hub.")
    token: str | None = HfArg(default=None, help="Token for the Hub.")
    trust_remote_code: bool = HfArg(
        default=False, help="Run code that comes with a model or a dataset of the Hub."
    )
    dtype: str | None = HfArg(default=None, help="Type of the weights: auto, bfloat16, float16, float32.")
    attn_implementation: str | None = HfArg(default=None, help="Attention to use: eager, sdpa, ...")
    ignore_mismatched_sizes: bool = HfArg(
        default=False, help="Start weights anew whose size differs from that of the pretrained ones."
    )


@dataclass
class DataFlags:
    """Which data to read, and how much of it."""

    _argument_group_name = "data"

    dataset_name: str | None = HfArg(default=None, help="A dataset of the Hub.")
    dataset_config_name: str | None = HfArg(default=None, help="Its configuration.")
    train_file: str | None = HfArg(
        default=None, help="Rows to learn from: csv, tsv, json, jsonl, parquet or txt."
    )
    validation_file: str | None = HfArg(default=None, help="Rows to evaluate on.")
    test_file: str | None = HfArg(default=None, help="Rows to predict.")
    encoding: str = HfArg(default="utf-8", help="Encoding of text files.")
    streaming: bool = HfArg(default=False, help="Read rows when they are needed, and keep no copy.")
    validation_split_percentage: int = HfArg(
        default=5, help="Share of the training rows to evaluate on, if there are no others."
    )
    max_train_samples: int | None = HfArg(default=None, help="Use no more rows to learn from.")
    max_eval_samples: int | None = HfArg(default=None, help="Use no more rows to evaluate on.")
    max_predict_samples: int | None = HfArg(default=None, help="Predict no more rows.")
    overwrite_cache: bool = HfArg(default=False, help="Prepare the data anew.")
    preprocessing_num_workers: int | None = HfArg(
        default=None, help="Processes that prepare the data; default: one for each core."
    )
    skip_bad_rows: bool = HfArg(
        default=False, help="Leave out rows that cannot be used, and say how many they were."
    )
    show_samples: int = HfArg(default=5, help="Rows to show at each evaluation; 0 shows none.")
