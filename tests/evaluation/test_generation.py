"""Who generates, what fills up its rows, and settings that agree or do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from torch import nn

from footplate.evaluation.generation import (
    check_settings,
    continues_prompt,
    describe_settings,
    get_generator,
    get_pad_token_id,
    load_generation_config,
)


class Generating(nn.Module):
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)

    def generate(self, input_ids: Any) -> Any:
        return input_ids


def check(settings: dict[str, Any], **config: Any) -> None:
    check_settings(settings, transformers.GenerationConfig(**config), lambda name: True)


def test_the_pad_token_is_the_tokenizers_then_the_models_then_the_end_of_text():
    model = Generating(pad_token_id=4, eos_token_id=[5, 6])
    assert get_pad_token_id(SimpleNamespace(pad_token_id=0, eos_token_id=1), model) == 0
    assert get_pad_token_id(SimpleNamespace(pad_token_id=None, eos_token_id=1), model) == 1
    assert get_pad_token_id(SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=3)), model) == 3
    assert get_pad_token_id(None, model) == 4
    assert get_pad_token_id(None, Generating(eos_token_id=[5, 6])) == 5
    assert get_pad_token_id(None, Generating(decoder=SimpleNamespace(pad_token_id=8))) == 8
    with pytest.raises(ValueError, match="pad_token_id"):
        get_pad_token_id(None, Generating())


def test_a_decoder_alone_is_known_by_its_configuration_or_by_its_own_word():
    assert continues_prompt(Generating(is_encoder_decoder=False))
    assert not continues_prompt(Generating(is_encoder_decoder=True))
    own = nn.Linear(1, 1)
    assert not continues_prompt(own)
    own.loss_shifts_labels = True
    assert continues_prompt(own)


def test_what_cannot_generate_is_refused():
    model = Generating()
    assert get_generator(model) is model
    model.can_generate = lambda: False
    for cannot in (model, nn.Linear(1, 1)):
        with pytest.raises(ValueError, match="predict_with_generate"):
            get_generator(cannot)


@pytest.mark.parametrize(
    ("settings", "config", "named"),
    [
        ({"max_length": 9, "max_new_tokens": 3}, {}, "max_new_tokens=3"),
        ({"max_length": 9}, {"max_new_tokens": 3}, "generation_max_length"),
        ({"num_return_sequences": 2}, {}, "num_return_sequences=2"),
        ({"num_return_sequences": 3, "num_beams": 2}, {}, "generation_num_beams"),
        ({"num_return_sequences": 3, "num_beams": 2, "do_sample": True}, {}, "generation_num_beams"),
        ({"max_length": 4}, {"min_length": 5}, "min_length=5 of the model's generation_config"),
        ({"max_new_tokens": 4, "min_new_tokens": 5}, {}, "min_new_tokens=5"),
        ({"max_length": 0}, {}, "generation_max_length"),
        ({"num_beams": 0}, {}, "generation_num_beams"),
    ],
)
def test_settings_that_contradict_each_other_are_named(settings, config, named):
    with pytest.raises(ValueError, match=named):
        check(settings, **config)


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {}),
        ({"max_new_tokens": 3}, {"max_length": 20}),
        ({"max_length": 20}, {"min_length": 5}),
        ({"num_return_sequences": 3, "do_sample": True}, {}),
        ({"num_return_sequences": 2, "num_beams": 2}, {}),
        ({"num_beams": 2, "do_sample": True}, {}),
        ({"max_new_tokens": 3}, {"min_length": 5, "max_length": 4}),
    ],
)
def test_settings_that_go_together_pass(settings, config):
    check(settings, **config)


def test_a_setting_that_generate_does_not_take_is_named():
    with pytest.raises(ValueError, match="num_beams"):
        check_settings({"num_beams": 2}, None, lambda name: name == "input_ids")


def test_the_line_on_settings_names_them_and_says_when_nobody_chose_a_length():
    config = transformers.GenerationConfig(num_beams=3, do_sample=False, pad_token_id=0)
    line, is_unchosen = describe_settings({"max_length": 9}, config)
    assert line == "Evaluation generates with max_length=9, num_beams=3, pad_token_id=0."
    assert not is_unchosen
    line, is_unchosen = describe_settings({}, config)
    assert (is_unchosen, "20 tokens" in line, "generation_max_length" in line) == (True, True, True)
    assert describe_settings({}, None)[1] is False


def test_a_generation_config_is_copied_and_checked(tmp_path):
    config = transformers.GenerationConfig(max_length=7)
    loaded = load_generation_config(config)
    assert loaded is not config
    assert loaded.max_length == 7
    with pytest.raises(ValueError, match="generation_config"):
        load_generation_config(transformers.GenerationConfig(temperature=0.5, do_sample=False))


@pytest.mark.parametrize("content", [None, "{", "folder"])
def test_a_generation_config_that_is_not_there_or_broken_is_named(tmp_path, content):
    path = tmp_path / "mine.json"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=r"generation_config=.*mine\.json"):
        load_generation_config(str(path))
