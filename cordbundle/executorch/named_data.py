"""`NamedDataStore` as ExecuTorch's backends use it.

Rules of this file: the meaning is that of `cordbundle.named_data`; records are ExecuTorch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir._serialize._named_data_store import NamedDataStoreOutput
from executorch.exir._serialize.data_serializer import DataEntry
from executorch.exir.scalar_type import ScalarType as ExecuTorchScalarType
from executorch.exir.tensor_layout import TensorLayout

from cordbundle import named_data
from cordbundle.cord import Cord
from cordbundle.errors import LayoutError
from cordbundle.executorch.blobs import CordBackedData
from cordbundle.scalar_types import ScalarType
from cordbundle.strided import order_by_stride

__all__ = ["NamedDataStore"]


class NamedDataStore(named_data.NamedDataStore):
    """Collect blobs under unique keys; see `cordbundle.named_data.NamedDataStore`.

    Unlike ExecuTorch's it holds tensors by reference, in its output too, where they are
    `CordBackedData`; and refuses a key that is added again with another tensor layout or external
    tag.
    """

    def _tensor(self, array: object, source: str) -> tuple[Cord, Any]:
        if not isinstance(array, torch.Tensor):
            return super()._tensor(array, source)
        cord, made = super()._tensor(array, source)
        layout: Any = made
        contiguous = array.is_contiguous()
        if not contiguous and not array.is_contiguous(memory_format=torch.channels_last):
            raise LayoutError(
                "a PyTorch tensor of this layout cannot be stored",
                source=source,
                expected="a contiguous tensor, or one in channels-last order",
                actual=f"sizes {tuple(array.shape)}, strides {array.stride()}",
                cause="give tensor.contiguous()",
            )
        if 0 in array.stride():
            return cord, layout
        # For dimensions of size 1 it has other preferences than `torch.Tensor.dim_order()`. Not
        # `TensorLayout.from_tensor()`, which knows fewer scalar types than `ScalarType` has.
        layout.dim_order = list(order_by_stride(array.stride()))
        return cord, layout

    def _layout(
        self, scalar_type: ScalarType, sizes: Sequence[int], dim_order: Sequence[int]
    ) -> Any:
        return TensorLayout(ExecuTorchScalarType(int(scalar_type)), list(sizes), list(dim_order))

    def _entry(self, index: int, alignment: int, layout: Any) -> Any:
        return DataEntry(index, alignment, layout)

    def _output(self, buffers: list[object]) -> Any:
        if any(isinstance(blob, Cord) for blob in buffers):
            buffers = [CordBackedData(b) if isinstance(b, Cord) else b for b in buffers]
        return NamedDataStoreOutput(buffers, self.pte_data, self.external_data)
