"""What is read from signatures is what the original reads, and overrides of any age can be called."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest
import torch
import transformers
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_pt_utils import get_model_param_count as original_param_count
from transformers.trainer_utils import number_of_arguments as original_number_of_arguments

import footplate
import tiny
from footplate.training import traits


def of_bert(name):
    return lambda: getattr(transformers, name)(tiny.bert_classifier(num_labels=2).config)


def with_adapter(build, **settings):
    def wrap():
        from peft import LoraConfig, get_peft_model

        return get_peft_model(build(), LoraConfig(r=2, **settings))

    return wrap


def translator():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=50, decoder_start_token_id=0, **sizes)
    )


def forecaster():
    sizes = {"context_length": 8, "patch_length": 4, "num_input_channels": 1, "d_model": 4}
    return transformers.PatchTSMixerForPrediction(transformers.PatchTSMixerConfig(**sizes))


def llama():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, **sizes))


class TakesAnything(nn.Module):
    def forward(self, x, labels=None, **kwargs):
        return {"loss": x}


class DeclinesTheCount(TakesAnything):
    accepts_loss_kwargs = False


class ClaimsTheCount(tiny.Regression):
    accepts_loss_kwargs = True


class ReturnsLoss(nn.Module):
    def forward(self, x, return_loss=True):
        return {"loss": x}


class ReturnsLossIfAsked(nn.Module):
    def forward(self, x, return_loss=None):
        return {"loss": x}


MODELS = {
    "plain": tiny.Regression,
    "takes anything": TakesAnything,
    "declines the count": DeclinesTheCount,
    "claims the count": ClaimsTheCount,
    "returns loss": ReturnsLoss,
    "returns loss if asked": ReturnsLossIfAsked,
    "classes": tiny.bert_classifier,
    "tokens": of_bert("BertForTokenClassification"),
    "spans": of_bert("BertForQuestionAnswering"),
    "masked": of_bert("BertForMaskedLM"),
    "pretraining": of_bert("BertForPreTraining"),
    "choices": of_bert("BertForMultipleChoice"),
    "no head": of_bert("BertModel"),
    "causal bert": of_bert("BertLMHeadModel"),
    "causal": tiny.gpt,
    "causal with a shifting loss": llama,
    "translation": translator,
    "series": forecaster,
    "causal with an adapter": with_adapter(
        tiny.gpt, task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True
    ),
    "spans with an adapter": with_adapter(
        of_bert("BertForQuestionAnswering"), task_type="QUESTION_ANS", target_modules=["query"]
    ),
    "translation with an adapter": with_adapter(translator, task_type="SEQ_2_SEQ_LM", target_modules=["q"]),
}


@pytest.fixture(scope="module")
def their_arguments(tmp_path_factory):
    return tiny.arguments(tmp_path_factory.mktemp("original"), transformers)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_read_as_by_the_original(name, their_arguments):
    model = MODELS[name]()
    original = transformers.Trainer(model=model, args=their_arguments)
    assert traits.find_label_names(model) == original.label_names
    assert traits.can_return_loss(model) == original.can_return_loss
    assert traits.accepts_loss_kwargs(model) == original.model_accepts_loss_kwargs
    assert traits.loss_shifts_labels(model) == original._loss_shifts_labels


def test_the_models_differ_in_every_trait():
    models = [build() for build in MODELS.values()]
    for read in (traits.can_return_loss, traits.accepts_loss_kwargs, traits.loss_shifts_labels):
        assert {read(model) for model in models} == {True, False}
    assert len({tuple(traits.find_label_names(model)) for model in models}) > 3


class Spans(nn.Module):
    def forward(self, x, start_positions=None, end_positions=None):
        return {"loss": x}


class SpansAndLabels(nn.Module):
    def forward(self, x, labels=None, start_positions=None):
        return {"loss": x}


def test_difference_answer_positions_are_labels_whatever_the_name_of_the_class():
    assert transformers.utils.generic.find_labels(Spans) == []
    assert traits.find_label_names(Spans()) == ["start_positions", "end_positions"]
    assert traits.find_label_names(SpansAndLabels()) == ["labels"]  # positions may be inputs there


@pytest.mark.parametrize("name", ["plain", "classes", "causal bert", "causal", "translation"])
def test_causal_models_are_those_of_the_originals_list(name):
    model = MODELS[name]()
    expected = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    assert traits.is_causal_lm(model) is expected
    assert expected is (name in ("causal bert", "causal"))


def test_causal_models_are_known_inside_an_adapter_and_a_compiled_model():
    assert traits.is_causal_lm(MODELS["causal with an adapter"]())
    assert traits.is_causal_lm(torch.compile(tiny.gpt(), backend="eager"))


class ShiftsItself(tiny.Regression):
    loss_shifts_labels = True


@pytest.mark.parametrize(
    ("build", "has_own_loss", "expected"),
    [
        (tiny.gpt, False, True),
        (tiny.gpt, True, False),  # the function of the user sees labels and logits as they are
        (of_bert("BertLMHeadModel"), False, True),
        (tiny.bert_classifier, False, False),
        (tiny.Regression, False, False),
        (ShiftsItself, False, True),
        (ShiftsItself, True, True),
    ],
)
def test_the_first_label_is_no_item_where_the_loss_that_counts_drops_it(build, has_own_loss, expected):
    assert traits.items_are_shifted(build(), has_own_loss) is expected


def test_a_model_may_say_that_its_loss_shifts_labels():
    assert traits.loss_shifts_labels(ShiftsItself())


def test_only_a_bare_encoder_has_no_head():
    assert traits.has_no_head(MODELS["no head"]())
    assert not traits.has_no_head(tiny.bert_classifier())
    assert not traits.has_no_head(tiny.Regression())


class UsesTheCount(nn.Module):
    def forward(self, x, num_items_in_batch=None, **kwargs):
        return {"loss": x / num_items_in_batch}


class LooksTheCountUp(nn.Module):
    def forward(self, x, **kwargs):
        return {"loss": x / kwargs["num_items_in_batch"]}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (TakesAnything, True),
        (UsesTheCount, False),
        (LooksTheCountUp, False),
        (tiny.Regression, False),
        (DeclinesTheCount, False),
        (tiny.gpt, False),
    ],
)
def test_a_count_that_forward_takes_and_never_mentions_is_noticed(build, expected):
    assert traits.leaves_num_items_unused(build()) is expected


def test_the_main_input_is_named_by_the_model():
    assert traits.main_input_name(forecaster()) == "past_values"
    assert traits.main_input_name(tiny.Regression()) == "input_ids"


@pytest.mark.parametrize("name", ["plain", "classes", "causal with an adapter"])
@pytest.mark.parametrize("trainable_only", [True, False])
def test_parameters_are_counted_as_by_the_original(name, trainable_only):
    model = MODELS[name]()
    count = traits.get_model_param_count(model, trainable_only)
    assert count == original_param_count(model, trainable_only) > 0


@pytest.mark.parametrize("name", ["plain", "classes", "causal", "causal with an adapter"])
def test_parameters_that_cost_operations_give_the_originals_operations(name, their_arguments):
    model = MODELS[name]()
    inputs = {"input_ids": torch.ones(3, 12, dtype=torch.long)}
    expected = transformers.Trainer(model=model, args=their_arguments).floating_point_ops(inputs)
    assert 6 * 36 * traits.count_flos_parameters(model) == expected
    assert (expected > 0) is (name != "plain")


def three(a, b, c=1):
    return a, b, c


@pytest.mark.parametrize(
    "function",
    [
        three,
        lambda: 0,
        functools.partial(three, 1),
        functools.partial(three, c=2),
        lambda *values: values,
        print,
    ],
)
def test_arguments_are_counted_as_by_the_original(function):
    assert traits.number_of_arguments(function) == original_number_of_arguments(function)


class Joints:
    """Overrides of several ages, and other things that are called in their place."""

    def old(self, model, inputs):
        return model, inputs

    def new(self, model, inputs, num_items_in_batch=None):
        return model, inputs, num_items_in_batch

    def open(self, *args, **kwargs):
        return (*args, *kwargs.values())

    @staticmethod
    def static(model, inputs):
        return model, inputs

    @classmethod
    def of_class(cls, model, inputs):
        return model, inputs


@dataclass
class CallableData:
    """Equal to others of its kind, so it has no hash."""

    scale: float = 1.0

    def __call__(self, model, inputs):
        return model, inputs


CALLABLES = {
    "old": (Joints().old, 2),
    "new": (Joints().new, 3),
    "open": (Joints().open, 3),
    "static": (Joints().static, 2),
    "of a class": (Joints().of_class, 2),
    "function": (lambda model, inputs: (model, inputs), 2),
    "partial": (functools.partial(three, 7), 2),
    "object without a hash": (CallableData(), 2),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_method_gets_as_many_values_as_it_takes_by_position(name):
    method, count = CALLABLES[name]
    result = traits.call_positional(method, 1, 2, 3)
    assert result == ((7, 1, 2) if name == "partial" else (1, 2, 3)[:count])
    assert [traits.takes_positional(method, n) for n in (1, 2, 3)] == [True, True, count == 3]


@pytest.mark.parametrize("name", [name for name in CALLABLES if name != "partial"])
def test_a_method_gets_only_the_values_it_names(name):
    method, count = CALLABLES[name]
    values = {"model": 1, "inputs": 2, "num_items_in_batch": 3}
    assert traits.call_with_declared(method, **values) == (1, 2, 3)[:count]
    assert traits.declares(method, "num_items_in_batch") is (count == 3)


def test_a_method_without_parameters_is_called_without():
    assert traits.call_positional(lambda: "called", 1, 2) == "called"


def test_a_wrapper_with_the_name_of_ours_is_told_from_ours():
    """`functools.wraps` copies the module's name too."""

    @functools.wraps(footplate.Trainer.compute_loss)
    def counted(*args, **kwargs):
        raise AssertionError

    class Wrapped(footplate.Trainer):
        compute_loss = counted

    assert traits.is_ours(footplate.Trainer.compute_loss)
    assert not traits.is_ours(counted)
    assert not traits.is_ours(Wrapped.compute_loss)
