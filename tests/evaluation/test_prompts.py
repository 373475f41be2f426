"""Prompts and answers cut from one another, on rows small enough to read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from footplate.evaluation.prompts import (
    check_prompt,
    count_prompt,
    cut_answers,
    cut_prompts,
    drop_prompt,
    fill_ignored,
    free_decoder,
    pad_to_length,
)

# a long prompt with a short answer, and the other way round; padded on the right and on the left
IDS = torch.tensor([[5, 6, 7, 8, 9, 0, 0], [0, 0, 5, 8, 9, 8, 9]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1]])
LABELS = torch.tensor([[-100, -100, -100, 8, 9, -100, -100], [-100, -100, -100, 8, 9, 8, 9]])


def test_prompts_end_side_by_side_whichever_side_was_padded():
    prompts = cut_prompts({"input_ids": IDS, "attention_mask": MASK}, LABELS, pad_token_id=3)
    assert prompts["input_ids"].tolist() == [[5, 6, 7], [3, 3, 5]]
    assert prompts["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]


def test_what_is_per_token_is_cut_alike_and_what_was_made_of_the_whole_is_left_out():
    pixels = torch.ones(2, 3, 4)
    batch = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": MASK * 2, "position_ids": MASK}
    prompts = cut_prompts({**batch, "pixel_values": pixels}, LABELS, 0)
    assert prompts["token_type_ids"].tolist() == [[2, 2, 2], [0, 0, 2]]
    assert prompts["pixel_values"] is pixels
    assert "position_ids" not in prompts


def test_without_labels_or_with_labels_apart_the_whole_text_is_the_prompt():
    for labels in (None, torch.tensor([[8], [9]]), torch.full_like(IDS, -100)):
        prompts = cut_prompts({"input_ids": IDS, "attention_mask": MASK}, labels, 0)
        assert prompts["input_ids"].tolist() == [[5, 6, 7, 8, 9], [5, 8, 9, 8, 9]]


def test_without_a_mask_every_token_before_the_first_label_counts():
    prompts = cut_prompts({"input_ids": IDS[:1]}, LABELS[:1], 0)
    assert prompts["input_ids"].tolist() == [[5, 6, 7]]
    assert prompts["attention_mask"].tolist() == [[1, 1, 1]]


def test_a_batch_without_token_ids_is_left_as_it_is():
    batch = {"inputs_embeds": torch.ones(1, 2, 3)}
    assert cut_prompts(batch, None, 0) == batch


def test_answers_begin_side_by_side_and_end_where_the_next_turn_begins():
    assert cut_answers(LABELS).tolist() == [[8, 9, -100, -100], [8, 9, 8, 9]]
    turns = torch.tensor([[-100, 7, -100, 8, 9], [-100, -100, -100, -100, -100]])
    assert cut_answers(turns).tolist() == [[7], [-100]]
    assert cut_answers(torch.full((2, 3), -100)).shape == (2, 0)


def test_a_prompt_is_counted_up_to_the_first_label():
    assert count_prompt([5, 6, 7], [-100, -100, 7]) == 2
    assert count_prompt([5, 6, 7], [5, 6, 7]) == 0
    assert count_prompt([5, 6, 7], None) == 3
    assert count_prompt([5, 6, 7], [8, 9]) == 3
    assert count_prompt(torch.tensor([5, 6]), torch.tensor([-100, -100])) == 2


def test_a_prompt_that_is_empty_or_leaves_no_room_is_refused():
    check_prompt(3, 4)
    check_prompt(300)
    with pytest.raises(ValueError, match="-100 over the prompt"):
        check_prompt(0)
    with pytest.raises(ValueError, match="generation_max_length"):
        check_prompt(4, 4)


def test_only_what_begins_with_the_prompt_loses_it():
    prompt = torch.tensor([[3, 5], [6, 7]])
    assert drop_prompt(torch.tensor([[3, 5, 9], [6, 7, 8]]), prompt).tolist() == [[9], [8]]
    assert drop_prompt(torch.tensor([[9], [8]]), prompt).tolist() == [[9], [8]]
    several = torch.tensor([[3, 5, 1], [3, 5, 2], [6, 7, 3], [6, 7, 4]])
    assert drop_prompt(several, prompt).tolist() == [[1], [2], [3], [4]]


def test_decoder_inputs_of_the_labels_shape_go_and_others_lose_their_ignored_tokens():
    given = torch.tensor([[0, 4], [0, -100]])
    batch = {"input_ids": IDS, "decoder_input_ids": given, "decoder_attention_mask": given != -100}
    assert list(free_decoder(batch, torch.ones(2, 2), 0)) == ["input_ids"]
    kept = free_decoder(batch, torch.ones(2, 3), 9)
    assert kept["decoder_input_ids"].tolist() == [[0, 4], [0, 9]]
    assert given[1, 1] == -100  # the loader's own batch is as it was
    assert free_decoder({"input_ids": IDS}, LABELS, 0) == {"input_ids": IDS}


def test_padding_fills_on_the_right_and_never_cuts():
    rows = torch.tensor([[1, 2]])
    assert pad_to_length(rows, 4, 9).tolist() == [[1, 2, 9, 9]]
    assert pad_to_length(rows, 1, 9).tolist() == [[1, 2]]


def test_ignored_tokens_of_nested_arrays_are_filled_in_place():
    tokens, scores = np.array([[1, -100]]), np.array([-100.0])
    fill_ignored((tokens, {"scores": scores, "none": None}), 7)
    assert tokens.tolist() == [[1, 7]]
    assert scores.tolist() == [-100.0]
    fill_ignored(None, 7)
