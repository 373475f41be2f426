"""Tests of who is called, in what order and with what."""

import dataclasses
import inspect
import logging
import random
from types import SimpleNamespace

import pytest
import transformers
from transformers.trainer_callback import CallbackHandler as OriginalHandler

from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.early_stopping import EarlyStoppingCallback
from footplate.callbacks.flow import DefaultFlowCallback
from footplate.callbacks.handler import CallbackHandler
from footplate.callbacks.progress import PrinterCallback, ProgressCallback
from footplate.state import TrainerControl, TrainerState

EVENTS = [name for name in vars(TrainerCallback) if name.startswith("on_")]
ORIGINAL_EVENTS = [event for event in EVENTS if hasattr(transformers.TrainerCallback, event)]
SPECIAL = {
    "on_evaluate": {"metrics": {"eval_loss": 1.0}},
    "on_predict": {"metrics": {}},
    "on_log": {"logs": {}},
}


def make(*callbacks):
    return CallbackHandler([DefaultFlowCallback, *callbacks], "model", "words", "optimizer", "schedule")


def fire(handler, event, control=None, state=None, **kwargs):
    control = control if control is not None else TrainerControl()
    state = state or TrainerState(max_steps=100)
    return getattr(handler, event)(flow_args(), state, control, **SPECIAL.get(event, {}), **kwargs)


def flow_args():
    return SimpleNamespace(
        logging_first_step=False, logging_strategy="no", eval_strategy="no", save_strategy="no", eval_delay=0
    )


def recorder(base, events):
    """A callback class deriving from `base` that keeps what it is told at `events`."""

    def record(event):
        def method(self, args, state, control, **kwargs):
            self.heard.append((event, kwargs))

        return method

    namespace = {event: record(event) for event in events}
    return type("Recorder", (base,), {"__init__": lambda self: setattr(self, "heard", []), **namespace})


@pytest.mark.parametrize("base", [TrainerCallback, transformers.TrainerCallback, object])
def test_every_event_reaches_callbacks_of_any_origin_with_all_keywords(base):
    callback = recorder(base, EVENTS)()
    handler = make(callback)
    handler.train_dataloader, handler.eval_dataloader = "train", "eval"
    handler.extras["trainer"] = "the trainer"
    for event in EVENTS:
        fire(handler, event, inputs=1)
    assert [event for event, _ in callback.heard] == EVENTS
    for event, kwargs in callback.heard:
        assert kwargs == {
            "model": "model",
            "processing_class": "words",
            "tokenizer": "words",
            "optimizer": "optimizer",
            "lr_scheduler": "schedule",
            "train_dataloader": "train",
            "eval_dataloader": "eval",
            "trainer": "the trainer",
            "inputs": 1,
            **SPECIAL.get(event, {}),
        }


def test_event_methods_have_the_signatures_of_the_original():
    others = ["call_event", "__init__", "add_callback", "pop_callback", "remove_callback"]
    for event in [*ORIGINAL_EVENTS, *others]:
        ours = inspect.signature(getattr(CallbackHandler, event)).parameters.values()
        theirs = inspect.signature(getattr(OriginalHandler, event)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], (
            event
        )


@pytest.mark.parametrize("event", ORIGINAL_EVENTS)
def test_flags_are_cleared_before_an_event_as_in_the_original(event):
    ours, theirs = TrainerControl(True, True, True, True, True), transformers.TrainerControl(*[True] * 5)
    seen = []
    callback = type("Looking", (TrainerCallback,), {event: lambda self, a, s, c, **k: seen.append(c.state())})
    handler = CallbackHandler([callback], None, None, None, None)
    original = OriginalHandler([transformers.TrainerCallback], None, None, None, None)
    fire(handler, event, ours)
    fire(original, event, theirs)
    assert seen == [theirs.state()]


def test_callbacks_are_called_in_the_order_they_were_added():
    order = []
    classes = [
        type(name, (TrainerCallback,), {"on_save": lambda self, *a, **k: order.append(type(self).__name__)})
        for name in "ABC"
    ]
    handler = make(*classes)
    fire(handler, "on_save")
    assert "".join(order) == "ABC"
    assert handler.callback_list == "DefaultFlowCallback\nA\nB\nC"


def test_a_returned_control_replaces_the_current_one_for_those_behind_and_the_caller():
    mine, seen = TrainerControl(), []

    class Replaces(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            return mine

    class Looks(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            seen.append(control)

    assert fire(make(Replaces, Looks), "on_save") is mine
    assert seen[0] is mine


def test_an_event_that_nobody_defines_calls_nobody():
    handler = make(recorder(TrainerCallback, ["on_save"]), transformers.PrinterCallback)
    listening = {event for event in EVENTS if handler.listens(event)}
    assert listening == {"on_train_begin", "on_step_end", "on_epoch_end", "on_save", "on_log"}
    control = TrainerControl()
    assert fire(handler, "on_optimizer_step", control) is control


def test_an_event_assigned_to_an_instance_is_heard():
    heard = []
    before, after = TrainerCallback(), TrainerCallback()
    before.on_step_begin = lambda *args, **kwargs: heard.append("before")
    handler = make(before)
    handler.callbacks.append(after)
    fire(handler, "on_step_begin")
    after.on_step_begin = lambda *args, **kwargs: heard.append("after")
    fire(handler, "on_epoch_begin")
    fire(handler, "on_step_begin")
    assert heard == ["before", "before", "after"]


def test_an_event_assigned_at_train_begin_is_heard_from_the_first_step():
    class Late(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            self.on_step_begin = lambda *args, **kwargs: heard.append(1)

    heard = []
    handler = make(Late)
    fire(handler, "on_step_begin")  # fills the index
    for event in ("on_train_begin", "on_epoch_begin", "on_step_begin"):
        fire(handler, event)
    assert heard == [1]


def test_the_list_of_callbacks_may_be_changed_in_place_or_replaced():
    cls = recorder(TrainerCallback, ["on_step_begin"])
    first, second, third = cls(), cls(), cls()
    handler = make(first)
    fire(handler, "on_step_begin")
    handler.callbacks[1] = second
    fire(handler, "on_step_begin")
    handler.callbacks.insert(0, third)
    fire(handler, "on_step_begin")
    handler.callbacks = [third]
    fire(handler, "on_step_begin")
    handler.callbacks.clear()
    fire(handler, "on_step_begin")
    assert [len(callback.heard) for callback in (first, second, third)] == [1, 2, 2]


def test_listeners_stay_right_over_random_edits():
    generator = random.Random(3)
    handler = make()
    for _ in range(200):
        cls = recorder(TrainerCallback, generator.sample(EVENTS, 3))
        edit = generator.choice(["add", "pop", "append", "delete", "reverse"])
        if edit == "add":
            handler.add_callback(cls)
        elif edit == "pop" and handler.callbacks:
            handler.pop_callback(generator.choice(handler.callbacks))
        elif edit == "append":
            handler.callbacks.append(cls())
        elif edit == "delete" and handler.callbacks:
            del handler.callbacks[generator.randrange(len(handler.callbacks))]
        else:
            handler.callbacks.reverse()
        event = generator.choice(EVENTS)
        expected = any(event in vars(type(callback)) for callback in handler.callbacks)
        assert handler.listens(event) == expected


def test_a_custom_event_reaches_those_who_define_it():
    class Custom(TrainerCallback):
        def on_coffee(self, args, state, control, cups, **kwargs):
            control.should_save = cups > 2

    handler = make(Custom)
    assert handler.call_event("on_coffee", None, TrainerState(), TrainerControl(), cups=3).should_save


def test_callbacks_come_and_go_as_classes_or_instances():
    printer, progress = PrinterCallback(), ProgressCallback()
    handler = make(printer, ProgressCallback)
    assert handler.pop_callback(printer) is printer
    assert isinstance(handler.pop_callback(ProgressCallback), ProgressCallback)
    assert handler.pop_callback(ProgressCallback) is None
    assert handler.pop_callback(progress) is None
    handler.add_callback(progress)
    handler.remove_callback(progress)
    handler.remove_callback(PrinterCallback)  # an absent class is no error, as in the original
    with pytest.raises(ValueError, match="DefaultFlowCallback"):
        handler.remove_callback(progress)
    handler.remove_callback(TrainerCallback)  # a base class removes the first that derives from it
    assert handler.callbacks == []


def test_only_the_first_of_a_class_is_removed():
    handler = make(PrinterCallback(), PrinterCallback())
    second = handler.callbacks[2]
    handler.remove_callback(PrinterCallback)
    assert handler.callbacks[1:] == [second]


def test_a_second_callback_of_a_class_and_a_missing_flow_are_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        make(PrinterCallback, type("MyPrinter", (PrinterCallback,), {}))
        CallbackHandler([transformers.DefaultFlowCallback], None, None, None, None)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        make(PrinterCallback, PrinterCallback)
    assert "second PrinterCallback" in caplog.text
    with caplog.at_level(logging.WARNING):
        CallbackHandler([PrinterCallback], None, None, None, None)
    assert "no DefaultFlowCallback" in caplog.text


def test_an_exception_in_a_callback_reaches_the_caller():
    class Fails(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fire(make(Fails), "on_step_begin")


@pytest.mark.parametrize("base", [TrainerCallback, transformers.TrainerCallback, object])
def test_step_data_is_wanted_by_those_who_say_so_and_not_by_those_who_hear_steps(base):
    callback = recorder(base, ["on_step_end", "on_pre_optimizer_step"])()
    handler = make(PrinterCallback, ProgressCallback, EarlyStoppingCallback, callback)
    assert not handler.wants_step_data
    callback.wants_step_data = True
    assert handler.wants_step_data
    handler.callbacks.pop()
    assert not handler.wants_step_data


def test_keywords_of_an_event_win_over_the_shared_ones():
    callback = recorder(TrainerCallback, ["on_save"])()
    fire(make(callback), "on_save", model="another")
    assert callback.heard[0][1]["model"] == "another"


def test_equal_callbacks_are_told_apart_at_the_next_epoch():
    @dataclasses.dataclass
    class Equal(TrainerCallback):
        count: int = dataclasses.field(default=0, compare=False)

        def on_epoch_begin(self, args, state, control, **kwargs):
            self.count += 1

    first, second = Equal(), Equal()
    handler = make(first)
    fire(handler, "on_epoch_begin")
    handler.callbacks[1] = second
    fire(handler, "on_epoch_begin")
    assert (first.count, second.count) == (1, 1)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_goes_through_call_event_where_a_subclass_overrides_it(event):
    class Noting(CallbackHandler):
        def call_event(self, event, args, state, control, **kwargs):
            noted.append((event, sorted(kwargs)))
            return super().call_event(event, args, state, control, **kwargs)

    noted, callback = [], recorder(TrainerCallback, EVENTS)()
    handler = Noting([DefaultFlowCallback, callback], None, None, None, None)
    fire(handler, event)
    assert noted == [(event, sorted(SPECIAL.get(event, {})))]
    assert [heard for heard, _ in callback.heard] == [event]


@pytest.mark.parametrize("event", ["on_init_end", "on_step_end", "on_log", "on_evaluate", "on_seal"])
def test_a_call_event_that_is_set_on_the_instance_is_used(event):
    """As libraries do that hand other keywords to every callback, whether or not it defines the event."""

    def call_event(event, args, state, control, **kwargs):
        for callback in handler.callbacks:
            getattr(callback, event)(args, state, control, own="keyword", **kwargs)
        return control

    ours, theirs = recorder(TrainerCallback, EVENTS)(), recorder(transformers.TrainerCallback, [])()
    handler = make(ours, theirs)
    handler.call_event = call_event
    fire(handler, event)
    ((heard, kwargs),) = ours.heard
    assert heard == event
    assert ("own" in kwargs) == (event != "on_seal")  # which a callback of the original does not have


def test_recorders_hear_an_event_before_the_list_and_reporters_after_it_whatever_call_event_does():
    order = []
    names = ["first", "listed", "last"]
    classes = [
        type(name, (TrainerCallback,), {"on_log": lambda self, *a, **k: order.append(type(self).__name__)})
        for name in names
    ]
    handler = make(classes[1])
    handler.recorders.append(classes[0]())
    handler.reporters.append(classes[2]())
    fire(handler, "on_log")
    handler.call_event = lambda event, args, state, control, **kwargs: control
    fire(handler, "on_log")
    assert order == [*names, "first", "last"]
    assert handler.callback_list == "DefaultFlowCallback\nlisted"
    handler.remove_callback(classes[0])
    assert handler.pop_callback(classes[2]) is not None
    fire(handler, "on_log")
    assert len(order) == 5


@pytest.mark.parametrize("event", ["on_step_end", "on_log", "on_save"])
@pytest.mark.parametrize("base", [TrainerCallback, transformers.TrainerCallback, object])
def test_a_listener_that_is_set_replaced_or_removed_on_an_instance_counts_at_once(base, event):
    heard = []
    cls = recorder(base, [event, "on_push_begin"])
    silent, loud = recorder(base, ["on_push_begin"])(), cls()
    handler = make(silent, loud)
    fire(handler, event)
    for callback in (silent, loud):
        setattr(callback, event, lambda *args, **kwargs: heard.append("new"))
    fire(handler, event)
    setattr(silent, event, lambda *args, **kwargs: heard.append("newer"))
    fire(handler, event)
    assert heard == ["new", "new", "newer", "new"]
    for callback in (silent, loud):
        delattr(callback, event)
    fire(handler, event)
    assert len(heard) == 4
    assert len(loud.heard) == 2


def test_a_callback_that_does_not_define_an_event_is_not_touched_by_it():
    class Counted(TrainerCallback):
        num_looks = 0

        def __getattribute__(self, name):
            Counted.num_looks += 1
            return super().__getattribute__(name)

    handler = make(Counted)
    fire(handler, "on_step_begin")
    looks = Counted.num_looks
    for _ in range(100):
        fire(handler, "on_step_begin", inputs=1)
    assert Counted.num_looks == looks
