"""ExecuTorch's own serializing functions and classes, on cordbundle.

Rules of this package: names, signatures and bytes are those of ExecuTorch 1.5, other versions are
refused when it is imported; the plain records that cross the border are ExecuTorch's own classes;
none of ExecuTorch's own serializers is called. Nothing else in cordbundle imports this package.

    from cordbundle.executorch import patched

    with patched():
        manager = edge.to_executorch()      # serialized by cordbundle
"""

from __future__ import annotations

from cordbundle.executorch.version import check_version

check_version()  # before anything of ExecuTorch is imported

from cordbundle.executorch.bundled import (  # noqa: E402
    bundled_program_cord,
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from cordbundle.executorch.flat_tensor import FlatTensorSerializer  # noqa: E402
from cordbundle.executorch.named_data import NamedDataStore  # noqa: E402
from cordbundle.executorch.patching import install, patched, uninstall  # noqa: E402
from cordbundle.executorch.programs import (  # noqa: E402
    deserialize_pte_binary,
    serialize_for_executorch,
    serialize_pte_binary,
)
from cordbundle.tags import tensor_data_paths  # noqa: E402

__all__ = [
    "FlatTensorSerializer",
    "NamedDataStore",
    "bundled_program_cord",
    "deserialize_from_flatbuffer_to_bundled_program",
    "deserialize_pte_binary",
    "install",
    "patched",
    "serialize_for_executorch",
    "serialize_from_bundled_program_to_flatbuffer",
    "serialize_pte_binary",
    "tensor_data_paths",
    "uninstall",
]
