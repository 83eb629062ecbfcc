"""Specs of leaves: what values an environment reads and writes under a key.

A spec knows shape, dtype and device of a leaf, makes zero and random values, and says in words why
a value does not fit. A size of -1 stands for a ragged dimension: any length, other in every row.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from tensordict import NonTensorData, NonTensorStack

from antiphon.errors import EnvError, InvalidParameter


class Spec:
    """What is known of one leaf.

    Args:
        shape: The batch dimensions and the value's own; -1 where the length differs from row to
            row.
        dtype: The value's dtype; None for what is not a tensor.
        device: Where values are made; None is wherever torch makes them.
    """

    def __init__(
        self,
        shape: torch.Size | tuple[int, ...] | int = (),
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.shape = torch.Size((shape,) if isinstance(shape, int) else shape)
        self.dtype = dtype
        self.device = None if device is None else torch.device(device)

    @property
    def ndim(self) -> int:
        """The number of dimensions, batch dimensions included."""
        return len(self.shape)

    # What each kind of spec says.

    def problem(self, value: Any) -> str | None:
        """Return why ``value`` does not fit, in words, or None where it does."""
        raise NotImplementedError

    def zero(self) -> Any:
        """Return a value of zeros; ragged dimensions get the length 0."""
        raise NotImplementedError

    def rand(self) -> Any:
        """Return a random value; ragged dimensions get the length 1."""
        raise NotImplementedError

    def is_in(self, value: Any) -> bool:
        """Return whether ``value`` fits."""
        return self.problem(value) is None

    def assert_is_in(self, value: Any) -> None:
        """Raise an error that says why ``value`` does not fit.

        Raises:
            EnvError: It does not.
        """
        problem = self.problem(value)
        if problem is not None:
            raise EnvError(f"The value does not fit its spec: {problem}.")

    def clone(self) -> Spec:
        """Return a copy that shares nothing that can change."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def expand(self, *shape: int) -> Spec:
        """Return a copy with this shape."""
        new = self.clone()
        new.shape = torch.Size(shape)
        return new

    def to(self, device: torch.device | str | None) -> Spec:
        """Return a copy that makes its values on ``device``; None changes nothing."""
        new = self.clone()
        new.device = self.device if device is None else torch.device(device)
        return new

    def _with_batch(self, batch: torch.Size, keep: int) -> Spec:
        return self.expand(*batch, *self.shape[keep:])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        details = ", ".join(
            f"{name}={value}"
            for name, value in self.__dict__.items()
            if value is not None and name != "shape"
        )
        return (
            f"{type(self).__name__}(shape={tuple(self.shape)}{', ' + details if details else ''})"
        )


def shape_fits(actual: torch.Size, wanted: torch.Size) -> bool:
    """Return whether ``actual`` has the sizes of ``wanted``, in which -1 stands for any."""
    return len(actual) == len(wanted) and all(
        want in (-1, have) for have, want in zip(actual, wanted, strict=True)
    )


class _TensorSpec(Spec):
    def __init__(
        self,
        shape: torch.Size | tuple[int, ...] | int = (),
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(shape, dtype, device)

    def _size(self, ragged: int) -> list[int]:
        return [ragged if size == -1 else size for size in self.shape]

    def _domain_problem(self, value: torch.Tensor) -> str | None:
        del value
        return None

    def problem(self, value: Any) -> str | None:
        if isinstance(value, list) and self.ndim and self.shape[0] in (-1, len(value)):
            # A ragged batch, read as a list of rows.
            row = self.expand(*self.shape[1:])
            for index, item in enumerate(value):
                problem = row.problem(item)
                if problem is not None:
                    return f"row {index}: {problem}"
            return None
        if not isinstance(value, torch.Tensor):
            return f"a tensor was expected, not {type(value).__name__}"
        if value.dtype != self.dtype:
            return f"dtype {self.dtype} was expected, not {value.dtype}"
        if not shape_fits(value.shape, self.shape):
            return f"shape {tuple(self.shape)} was expected, not {tuple(value.shape)}"
        return self._domain_problem(value)

    def zero(self) -> torch.Tensor:
        return torch.zeros(self._size(0), dtype=self.dtype, device=self.device)


class Unbounded(_TensorSpec):
    """A tensor with no limit on its values.

    Args:
        shape: The tensor's, batch dimensions first.
        dtype: Its dtype.
        device: Where it is; None for anywhere.
    """

    def rand(self) -> torch.Tensor:
        size, dtype = self._size(1), cast("torch.dtype", self.dtype)
        if dtype == torch.bool:
            return torch.rand(size, device=self.device) < 0.5
        if dtype.is_floating_point:
            return torch.randn(size, dtype=dtype, device=self.device)
        return torch.randint(0, 128, size, dtype=dtype, device=self.device)


class Bounded(_TensorSpec):
    """A tensor whose values lie in ``[low, high]``.

    Args:
        low: The least value.
        high: The greatest.
        shape: The tensor's, batch dimensions first.
        dtype: Its dtype.
        device: Where it is; None for anywhere.

    Raises:
        InvalidParameter: ``low`` is above ``high``.
    """

    def __init__(
        self,
        low: float,
        high: float,
        shape: torch.Size | tuple[int, ...] | int = (),
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if not low <= high:
            raise InvalidParameter(f"Bounded needs low <= high, not {low} and {high}.")
        super().__init__(shape, dtype, device)
        self.low, self.high = low, high

    def _domain_problem(self, value: torch.Tensor) -> str | None:
        if value.numel() and not bool(((value >= self.low) & (value <= self.high)).all()):
            return f"values between {self.low} and {self.high} were expected"
        return None

    def zero(self) -> torch.Tensor:
        return super().zero().clamp(self.low, self.high)

    def rand(self) -> torch.Tensor:
        if cast("torch.dtype", self.dtype).is_floating_point:
            unit = torch.rand(self._size(1), dtype=self.dtype, device=self.device)
            return unit * (self.high - self.low) + self.low
        low, high = int(self.low), int(self.high)
        return torch.randint(low, high + 1, self._size(1), dtype=self.dtype, device=self.device)


class Categorical(_TensorSpec):
    """A tensor of class numbers ``0 .. n-1``; with ``n=2`` and dtype bool, a flag.

    Args:
        n: The number of classes.
        shape: The tensor's, batch dimensions first.
        dtype: Its dtype.
        device: Where it is; None for anywhere.

    Raises:
        InvalidParameter: ``n`` is below 1.
    """

    def __init__(
        self,
        n: int,
        shape: torch.Size | tuple[int, ...] | int = (),
        dtype: torch.dtype = torch.int64,
        device: torch.device | str | None = None,
    ) -> None:
        if n < 1:
            raise InvalidParameter(f"Categorical needs at least one class, not n={n}.")
        super().__init__(shape, dtype, device)
        self.n = n

    def _domain_problem(self, value: torch.Tensor) -> str | None:
        if self.dtype == torch.bool or not value.numel():
            return None
        if int(value.min()) < 0 or int(value.max()) >= self.n:
            return f"classes 0 to {self.n - 1} were expected"
        return None

    def rand(self) -> torch.Tensor:
        number = torch.randint(0, self.n, self._size(1), device=self.device)
        return number.to(cast("torch.dtype", self.dtype))


class NonTensor(Spec):
    """Any Python value, one for each element of ``shape``.

    Args:
        shape: The batch dimensions.
        device: Kept for symmetry.
        example_data: What `zero` and `rand` give; its type (if not None) is the type that is
            expected.
        data_type: The expected type, where it is not the example's.
    """

    def __init__(
        self,
        shape: torch.Size | tuple[int, ...] | int = (),
        device: torch.device | str | None = None,
        *,
        example_data: Any = None,
        data_type: type | tuple[type, ...] | None = None,
    ) -> None:
        super().__init__(shape, None, device)
        self.example_data = example_data
        if data_type is None and example_data is not None:
            data_type = type(example_data)
        self.data_type = data_type

    def problem(self, value: Any) -> str | None:
        if isinstance(value, NonTensorStack):
            if not shape_fits(value.batch_size, self.shape):
                return f"shape {tuple(self.shape)} was expected, not {tuple(value.batch_size)}"
            value = value.tolist()
        elif isinstance(value, NonTensorData):
            value = value.data
        return self._data_problem(value, self.ndim)

    def _data_problem(self, value: Any, depth: int) -> str | None:
        if depth and isinstance(value, (list, tuple)):
            for item in value:
                problem = self._data_problem(item, depth - 1)
                if problem is not None:
                    return problem
            return None
        if self.data_type is None or isinstance(value, self.data_type):
            return None
        wanted = getattr(self.data_type, "__name__", str(self.data_type))
        return f"{wanted} was expected, not {type(value).__name__}"

    def _filled(self, ragged: int) -> NonTensorData | NonTensorStack:
        return self._stack([ragged if size == -1 else size for size in self.shape])

    def _stack(self, sizes: list[int]) -> NonTensorData | NonTensorStack:
        # tensordict before 0.15 can't ask an empty stack for its names.
        if not sizes or not sizes[0]:
            return NonTensorData(self.example_data, batch_size=(0,) * len(sizes))
        return NonTensorStack(*(self._stack(sizes[1:]) for _ in range(sizes[0])))

    def zero(self) -> NonTensorData | NonTensorStack:
        return self._filled(0)

    def rand(self) -> NonTensorData | NonTensorStack:
        return self._filled(1)
