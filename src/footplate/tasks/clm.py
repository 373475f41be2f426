"""Learn to predict the next token of a text."""

from __future__ import annotations

from footplate.tasks.common.blocks import NextToken


class CausalLanguageModeling(NextToken):
    """Running text, cut into blocks; each token predicts the next."""

    summary = "Learn to predict the next token of a text."
    example = (
        "--model_name_or_path MODEL --train_file train.txt --validation_file dev.txt "
        "--block_size 512 --do_train --do_eval --output_dir out"
    )
    first_flags = ("block_size", "validation_split_percentage", "max_train_samples")
