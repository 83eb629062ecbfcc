"""`DatasetChatEnv`: conversations about the rows of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from antiphon.envs.chat import ChatEnv, InputMode
from antiphon.envs.composite import Composite
from antiphon.envs.data import DataLoadingPrimer
from antiphon.envs.rows import RowLoader, load_rows
from antiphon.envs.tasks import Task
from antiphon.envs.transformed import TransformedEnv
from antiphon.errors import PluginError


class DatasetChatEnv(TransformedEnv):
    """A `ChatEnv` whose questions come from a data set: a reset takes the next rows.

    Args:
        dataset: A list of rows, a ``datasets`` object, a JSONL, Parquet or Arrow file, a folder that
            ``datasets`` saved, or a hub name.
        shuffle: Draw a new order for each epoch.
        name: The configuration of a hub data set.
        split: The split.
        num_envs: Rows that a reset takes.
        repeats: How often each row is handed out in succession; see ``"group_id"``.
        batch_size_dl: Rows that are read from the data set at once.
        seed: Settles the order.
        group_repeats: Refuse batches that would split a group of repeats.
        tokenizer: See `ChatEnv`.
        device: Where tensors are made.
        template_kwargs: See `ChatEnv`.
        apply_template: Give text prompts; the same as ``input_mode="text"``.
        collate_fn: Makes rows (mappings, or a tensordict) of a list of the data set's items.
        input_mode: See `ChatEnv`.
        data_key: The field of the question.
        primers: The specs of the rows' entries.
        system_prompt: Put before every conversation; the class's ``SYSTEM_PROMPT`` if None.
        streaming: Read a file or a hub data set while it is used; shuffling is within a buffer.
        ray_backend: Rows come from a loader that workers on Ray share; needs the Ray plugin.
        dataloader_actor_name: The name of the shared loader; implies ``ray_backend``.
        **chat: Further arguments of `ChatEnv`: task, max_turns, max_tokens, end_condition, roles.
    """

    SYSTEM_PROMPT: str | None = None

    def __init__(
        self,
        *,
        dataset: Any,
        shuffle: bool = True,
        name: str | None = None,
        split: str | None = None,
        num_envs: int = 1,
        repeats: int | None = None,
        batch_size_dl: int = 1,
        seed: int | None = None,
        group_repeats: bool = False,
        tokenizer: Any = None,
        device: torch.device | str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        apply_template: bool | None = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        input_mode: InputMode = "history",
        data_key: str | None = None,
        primers: Composite | None = None,
        system_prompt: str | None = None,
        streaming: bool = False,
        ray_backend: bool = False,
        dataloader_actor_name: str | None = None,
        **chat: Any,
    ) -> None:
        def rows() -> Iterable[Any]:
            found = load_rows(dataset, name=name, split=split, streaming=streaming)
            loader = RowLoader(found, batch_size=batch_size_dl, shuffle=shuffle, seed=seed)
            return loader if collate_fn is None else _Collated(loader, collate_fn)

        shared = ray_backend or dataloader_actor_name is not None
        self._build(
            # Where the rows are shared, they are read by whoever hands them out.
            rows if shared else rows(),
            primer_options={"actor_name": dataloader_actor_name} if shared else None,
            repeats=repeats,
            group_repeats=group_repeats,
            primers=primers,
            batch_size=(num_envs,),
            device=device,
            tokenizer=tokenizer,
            template_kwargs=template_kwargs,
            input_mode="text" if apply_template else input_mode,
            data_key=data_key,
            system_prompt=self.SYSTEM_PROMPT if system_prompt is None else system_prompt,
            **chat,
        )

    def _build(
        self,
        loader: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        repeats: int | None,
        group_repeats: bool,
        primers: Composite | None,
        device: torch.device | str | None,
        primer_options: Mapping[str, Any] | None = None,
        **chat: Any,
    ) -> None:
        env = ChatEnv(device=device, **chat)
        shared = primer_options is not None
        make: Any = _shared_primer() if shared else DataLoadingPrimer
        primer: DataLoadingPrimer = make(
            **({"dataloader_factory": loader} if shared else {"dataloader": loader}),
            **(primer_options or {}),
            repeats=repeats,
            group_repeats=group_repeats,
            primers=primers,
            device=device,
            data_key=env.data_key,
            row_fault=None if env.task is None else env.task.row_fault,
        )
        super().__init__(env, primer)
        self.primer = primer

    @classmethod
    def from_dataloader(
        cls,
        dataloader: Iterable[Any],
        *,
        repeats: int | None = None,
        device: torch.device | str | None = None,
        group_repeats: bool = False,
        batch_size: torch.Size | tuple[int, ...] | int | None = None,
        primers: Composite | None = None,
        tokenizer: Any = None,
        template_kwargs: Mapping[str, Any] | None = None,
        input_mode: InputMode = "history",
        data_key: str | None = None,
        system_prompt: str | None = None,
        **chat: Any,
    ) -> DatasetChatEnv:
        """Return an environment whose rows come from ``dataloader``; see `DataLoadingPrimer`.

        Args:
            dataloader: As for `DataLoadingPrimer`.
            repeats: How often each row is handed out in succession.
            device: Where values are made.
            group_repeats: Refuse batches that would split a group.
            batch_size: The number of conversations.
            primers: The specs of the rows' entries; found from the first row if None.
            tokenizer: As for `ChatEnv`.
            template_kwargs: As for `ChatEnv`.
            input_mode: As for `ChatEnv`.
            data_key: The entry of a row that the conversation starts with.
            system_prompt: In place of the class's own; "" leaves it out.
            **chat: Further arguments of `ChatEnv`.
        """
        env = cls.__new__(cls)
        env._build(
            dataloader,
            repeats=repeats,
            group_repeats=group_repeats,
            primers=primers,
            device=device,
            batch_size=batch_size,
            tokenizer=tokenizer,
            template_kwargs=template_kwargs,
            input_mode=input_mode,
            data_key=data_key,
            system_prompt=cls.SYSTEM_PROMPT if system_prompt is None else system_prompt,
            **chat,
        )
        return env

    @classmethod
    def make_task(cls, **options: Any) -> Task:
        """Return the task of these conversations, for `antiphon rollout`."""
        return Task(system_prompt=cls.SYSTEM_PROMPT, **options)

    def reset_dataloader(self) -> None:
        """Begin the data anew."""
        self.primer.reset_dataloader()

    def state_dict(self) -> dict[str, Any]:
        """Return where the data stands."""
        return self.primer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called.

        Args:
            state: What `state_dict` gave, perhaps in another process.
        """
        self.primer.load_state_dict(state)


def _shared_primer() -> Any:
    from antiphon.registry import get_transform

    try:
        return get_transform("ray_data").load()
    except PluginError as error:
        raise PluginError(
            "ray_backend needs the Ray plugin's RayDataLoadingPrimer; run `pip install antiphon-ray`, "
            "or leave it out to load the data in this process."
        ) from error


class _Collated:
    """A loader whose batches go through a collate function, its state the loader's."""

    def __init__(self, loader: Any, collate: Callable[[list[Any]], Any]) -> None:
        self._loader, self._collate = loader, collate
        self.batch_size = loader.batch_size

    def __iter__(self) -> Any:
        return (self._collate(batch) for batch in self._loader)

    def reset(self) -> None:
        self._loader.reset()

    def set_seed(self, seed: int) -> None:
        self._loader.set_seed(seed)

    def state_dict(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._loader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state)
