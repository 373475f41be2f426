"""How the Trainer describes what it has trained, and shares it."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.checkpoint.seal import is_whole
from footplate.outputs import HubStrategy
from footplate.trainer.api import TrainerApi
from footplate.training import traits

if TYPE_CHECKING:
    from footplate.hub.publisher import Publisher, PushInProgress

logger = logging.getLogger(__name__)

SAGEMAKER_PATTERNS = ("*.sagemaker-uploading", "*.sagemaker-uploaded")


class Sharing(TrainerApi):
    """The model card, and the Hub."""

    @property
    def hub_model_id(self) -> str | None:
        """The repository with its owner, once the Hub has said it."""
        return self._publisher.repository.repo_id if self._publisher is not None else None

    @hub_model_id.setter
    def hub_model_id(self, name: str) -> None:
        find_publisher(self).repository.repo_id = name

    @property
    def push_in_progress(self) -> PushInProgress | None:
        """The pushes that are under way, or the last ones; None if there was none."""
        return self._publisher.in_progress if self._publisher is not None else None

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Make the repository `args.hub_model_id` on the Hub, unless it exists.

        Args:
            token: Default: `args.hub_token`, else that of the logged-in user.
            private: Whether it is private if it is new; default: `args.hub_private_repo`.
        """
        if self.is_world_process_zero():
            find_publisher(self, token, private).repository.create(token)

    def init_git_repo(self, at_init: bool = False) -> None:
        """The name of `init_hf_repo` before 4.35; nothing is cloned any more."""
        self.init_hf_repo()

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Save the model, write its card, and send both to `args.hub_model_id`; return what the Hub says.

        Args:
            commit_message: Of the commit.
            blocking: Wait, return its `CommitInfo`, and raise `OSError` if it fails; else return a `Future`.
            token: Default: `args.hub_token`, else that of the logged-in user.
            revision: The branch; default: `args.hub_revision`.
            private: Whether the repository is private if it is new; default: `args.hub_private_repo`.
            **kwargs: Arguments of `create_model_card`.
        """
        self._event("on_push_begin")
        publisher = find_publisher(self, token, private)
        publisher.wait_for_folder()  # its files are written anew
        save_for_push(self, publisher)
        if not self.is_world_process_zero():
            return None
        name = kwargs.pop("model_name", None) or publisher.repository.name.split("/")[-1]
        self.create_model_card(model_name=name, **kwargs)
        future = publisher.push_folder(
            name_of_push(self), commit_message or "End of training", revision, token
        )
        return future.result() if blocking else future

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Queue a sealed checkpoint for the Hub, as `args.hub_strategy` says; never waits, never raises."""
        args, folder = self.args, Path(checkpoint_folder)
        if not self.is_world_process_zero() or args.hub_strategy == HubStrategy.END:
            return
        publisher = find_publisher(self)
        if not is_whole(folder):
            logger.warning("%s is not pushed: it is not a complete checkpoint.", folder)
        elif publisher.is_busy and not args.hub_always_push:
            publisher.postpone(folder)
        else:
            self._event("on_push_begin")
            push_checkpoint(self, publisher, folder)

    def _finish_current_push(self) -> None:
        """Wait until the pushes that are under way have ended."""
        if self._publisher is not None:
            self._publisher.wait()

    def _add_sm_patterns_to_gitignore(self) -> None:
        """Keep the files by which SageMaker marks its uploads out of the repository."""
        if self.is_world_process_zero():
            path = Path(self._current_run.locate(str(self.args.output_dir)), ".gitignore")
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            missing = [line for line in SAGEMAKER_PATTERNS if line not in lines]
            if missing:
                path.write_text("\n".join([*lines, *missing, ""]), encoding="utf-8")

    def create_model_card(
        self,
        language: str | list[str] | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """Write `README.md` into `args.output_dir`; what a person wrote between its marks is kept.

        Args:
            language: Of the data, as a code such as "en".
            license: Of the model, as the Hub names it.
            tags: Further tags.
            model_name: Default: the name of the folder.
            finetuned_from: The model that training began with; default: its name on the Hub, if it has one.
            tasks: What the model is for, as the Hub names it; default: what its class is made for.
            dataset_tags: Names of the data on the Hub; default: those of the Trainer's own, if they have one.
            dataset: Names of the data for people.
            dataset_args: Further arguments of each.
        """
        if not self.is_world_process_zero():
            return
        from footplate.hub.card import save_card  # what a card is made of is loaded with the first one
        from footplate.hub.facts import as_list
        from footplate.trainer.describing import describe_model, name_datasets

        named = name_datasets(self, dataset_tags, dataset, dataset_args)
        found = describe_model(
            self,
            model_name=model_name,
            finetuned_from=finetuned_from,
            tasks=as_list(tasks),
            tags=as_list(tags),
            datasets=named,
        )
        found.language, found.license = as_list(language), license
        save_card(found, Path(self._current_run.locate(str(self.args.output_dir))))


def find_publisher(trainer: Sharing, token: str | None = None, private: bool | None = None) -> Publisher:
    """The Trainer's way to the Hub, made when it is first needed."""
    if trainer._publisher is None:
        from footplate.hub.client import Repository
        from footplate.hub.publisher import Publisher

        args = trainer.args
        folder = Path(os.path.abspath(trainer._current_run.locate(str(args.output_dir))))
        repository = Repository(
            args.hub_model_id or folder.name,
            token or args.hub_token,
            args.hub_private_repo if private is None else private,
            args.hub_revision,
        )
        trainer._publisher = Publisher(folder, repository, HubStrategy(args.hub_strategy).value)
    return trainer._publisher


def open_hub(trainer: Sharing) -> None:
    """Make the repository before training, so that a wrong name or token shows; it cannot stop the run."""
    if trainer.args.push_to_hub and trainer.is_world_process_zero():
        find_publisher(trainer).open()


def name_of_push(trainer: Sharing) -> str:
    """What a push of the model is called where pushes are listed."""
    from footplate.hub.contents import MODEL

    return f"{MODEL} of update {trainer.state.global_step}"


def push_checkpoint(trainer: Sharing, publisher: Publisher, folder: Path) -> None:
    """Queue a checkpoint under a message that says how far training is; a problem is only warned of."""
    step, epoch = folder.name.rpartition("-")[2], int(trainer.state.epoch or 0)
    progress = f"epoch {epoch}" if trainer.args.save_strategy == "epoch" else f"step {step}"
    try:
        publisher.push_checkpoint(folder, f"Training in progress, {progress}")
    except OSError as error:
        logger.warning("%s is not pushed: %s", folder, error)


def save_for_push(trainer: Sharing, publisher: Publisher) -> None:
    """Save the model into the run's folder; that save is not pushed itself. All ranks call this."""
    publisher.is_collecting = True
    try:
        traits.call_with_declared(trainer.save_model, _internal_call=True)
    finally:
        publisher.is_collecting = False


def push_saved(trainer: Sharing) -> None:
    """Push what a user's `save_model` wrote; if the Hub fails, its warning says what to do."""
    publisher = trainer._publisher
    if not trainer.args.push_to_hub or (publisher is not None and publisher.is_collecting):
        return
    if publisher is not None and trainer.is_in_train and publisher.is_busy:  # training must not wait
        if trainer.args.world_size > 1:  # other ranks do not know what the first one sends, and save now
            save_for_push(trainer, publisher)
        publisher.expect([name_of_push(trainer)])
        return
    from footplate.hub.client import PushError

    with contextlib.suppress(PushError):
        trainer.push_to_hub(
            commit_message="Model save", revision=trainer.args.hub_revision, blocking=not trainer.is_in_train
        )


def push_folder(trainer: Sharing, message: str) -> None:
    """Send the run's folder as it is, and wait; if the Hub fails, its warning says what to do."""
    if trainer.args.push_to_hub and trainer.is_world_process_zero():
        from footplate.hub.client import PushError

        with contextlib.suppress(PushError):
            find_publisher(trainer).push_folder(name_of_push(trainer), message).result()


def finish_pushes(trainer: Sharing) -> None:
    """At the end of training, send what was postponed, wait briefly, and name what is missing."""
    publisher = trainer._publisher
    # another rank has one too if it has saved, but knows nothing of what arrived
    if publisher is not None and trainer.is_world_process_zero():
        for folder in publisher.take_postponed():
            push_checkpoint(trainer, publisher, folder)
        publisher.wait_briefly()
