"""Everything that users import from the original's trainer modules is at the top of the package."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import footplate
from footplate import takeover

METHOD = "a method of Trainer, written there as a function"
TPU = "for TPUs only, through torch_xla"
SAGEMAKER = "for SageMaker's model parallelism only"
DEEPSPEED = "sets up DeepSpeed, which footplate does not start yet"
SEARCH = "runs a search, which is a part of its own"
INSIDE = "a step inside the original's Trainer that nothing outside calls"
NOTEBOOK = "draws a part of the notebook's table; NotebookProgressCallback is the name that scripts use"

# names of the original that footplate leaves out, each with the reason
LEFT_OUT = {
    "log_metrics": METHOD,
    "save_metrics": METHOD,
    "save_state": METHOD,
    "get_num_trainable_parameters": METHOD,
    "get_learning_rates": METHOD,
    "get_optimizer_group": METHOD,
    "nested_xla_mesh_reduce": TPU,
    "get_tpu_sampler": TPU,
    "smp_forward_backward": SAGEMAKER,
    "smp_forward_only": SAGEMAKER,
    "smp_gather": SAGEMAKER,
    "smp_nested_concat": SAGEMAKER,
    "HfDeepSpeedConfig": DEEPSPEED,
    "HfTrainerDeepSpeedConfig": DEEPSPEED,
    "set_hf_deepspeed_config": DEEPSPEED,
    "unset_hf_deepspeed_config": DEEPSPEED,
    "initialize_weights_zero3": DEEPSPEED,
    "deepspeed_optim_sched": DEEPSPEED,
    "deepspeed_init": DEEPSPEED,
    "deepspeed_load_checkpoint": DEEPSPEED,
    "deepspeed_sp_compute_loss": DEEPSPEED,
    "propagate_args_to_deepspeed": DEEPSPEED,
    "prevent_arange_dtype_change": DEEPSPEED,
    "run_hp_search_optuna": SEARCH,
    "run_hp_search_ray": SEARCH,
    "run_hp_search_wandb": SEARCH,
    "HyperParamSearchBackendBase": SEARCH,
    "OptunaBackend": SEARCH,
    "RayTuneBackend": SEARCH,
    "WandbBackend": SEARCH,
    "ALL_HYPERPARAMETER_SEARCH_BACKENDS": SEARCH,
    "default_hp_search_backend": SEARCH,
    "validate_quantization_for_training": INSIDE,
    "compare_trainer_and_checkpoint_args": INSIDE,
    "suppress_progress_bars": INSIDE,
    "is_attention_mask_causal": INSIDE,
    "reissue_pt_warnings": INSIDE,
    "remove_dummy_checkpoint": INSIDE,
    "set_rng_state_for_device": INSIDE,
    "has_mixed_dtensor": INSIDE,
    "OptimizerContext": INSIDE,
    "OptimizerHandler": INSIDE,
    "save_model_architecture_to_file": INSIDE,
    "default_logdir": INSIDE,
    "IS_XLA_FSDPV2_POST_2_2": TPU,
    "safe_globals": "lets torch.load make objects; footplate reads plain values only",
    "BatchRebalanceSampler": "divides an update over ranks by cost; footplate has no such sample order yet",
    "OPTIMIZER_NAME_BIN": "a file that Accelerate writes for FSDP; footplate does not start FSDP yet",
    "FSDP_MODEL_NAME": "a file that Accelerate writes for FSDP; footplate does not start FSDP yet",
    "CheckpointManager": "saves on SIGTERM; footplate does so without being asked",
    "JITCheckpointCallback": "saves on SIGTERM; footplate does so without being asked",
    "WandbLogModel": "an enum inside WandbCallback",
    "NeptuneCallback": "the service closed in March 2026",
    "NeptuneMissingConfiguration": "the service closed in March 2026",
    "format_time": NOTEBOOK,
    "html_progress_bar": NOTEBOOK,
    "text_to_html_table": NOTEBOOK,
    "NotebookProgressBar": NOTEBOOK,
    "NotebookTrainingTracker": NOTEBOOK,
}
NEVER = {"logger"}  # every module has one


def public_names(module: str) -> set[str]:
    """The classes, functions and values that a module of the original defines, whatever the machine has."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    found: set[str] = set()
    todo = list(ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, (ast.If, ast.Try)):
            todo += node.body
    return {name for name in found if not name.startswith("_")} - NEVER


HOMES = [module for module in takeover.HOMES if find_spec(module) is not None]


@pytest.mark.parametrize("module", HOMES)
def test_every_name_of_the_original_is_here_or_left_out_for_a_reason(module):
    missing = public_names(module) - set(footplate.__all__) - set(LEFT_OUT)
    assert not missing


def test_many_names_are_compared():
    """A list that shrinks in silence would compare nothing."""
    assert len(HOMES) >= 15
    assert len({name for module in HOMES for name in public_names(module)}) > 200


def test_nothing_is_left_out_that_is_here_or_that_the_original_no_longer_has():
    everything = {name for module in HOMES for name in public_names(module)}
    assert set(LEFT_OUT) <= everything
    assert not set(LEFT_OUT) & set(footplate.__all__)


def test_what_packages_of_the_original_pass_on_is_here_too():
    integrations = ["is_fsdp_enabled", "is_fsdp_managed_module", "INTEGRATION_TO_CALLBACK", "WandbCallback"]
    assert set(integrations) <= set(footplate.__all__)


@pytest.mark.parametrize("name", footplate.__all__)
def test_a_name_can_be_imported_from_the_package(name):
    assert getattr(footplate, name) is getattr(importlib.import_module("footplate.public"), name)


def test_names_that_both_have_are_of_the_same_kind():
    """A class here is a class there, and a function here can be called there: scripts use them alike."""
    different = []
    for module in HOMES:
        original = importlib.import_module(module)
        for name in public_names(module) & set(footplate.__all__):
            ours, theirs = getattr(footplate, name), getattr(original, name, None)
            if theirs is not None and (isinstance(ours, type), callable(ours)) != (
                isinstance(theirs, type),
                callable(theirs),
            ):
                different.append(name)
    assert not different


def test_a_tracker_that_a_user_adds_to_the_table_can_be_named_in_report_to():
    class Mine(footplate.TrainerCallback):
        """A tracker of somebody's own."""

    footplate.INTEGRATION_TO_CALLBACK["mine"] = Mine
    try:
        assert footplate.get_reporting_integration_callbacks(["mine"]) == [Mine]
    finally:
        del footplate.INTEGRATION_TO_CALLBACK["mine"]
    assert footplate.INTEGRATION_TO_CALLBACK["wandb"] is footplate.WandbCallback
