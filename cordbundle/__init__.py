"""Assemble ExecuTorch artifacts by reference: `.pte`, `.ptd` and `.bpte` files of any size."""

from __future__ import annotations

from cordbundle.artifact import SegmentRange
from cordbundle.bpte import BundleFile
from cordbundle.bundling import Bundle, bundle
from cordbundle.cord import Cord
from cordbundle.errors import (
    CaseMismatchError,
    CordBundleError,
    DuplicateKeyError,
    FormatError,
    IntegrityError,
    LayoutError,
    SourceChangedError,
    TooLargeError,
    TruncatedError,
    UnsupportedVersionError,
    WriteError,
)
from cordbundle.flatbuffer import Finding
from cordbundle.layout import Layout, Placement, Segment
from cordbundle.named_data import (
    DataEntry,
    DataPayload,
    NamedDataStore,
    NamedDataStoreOutput,
    TensorLayout,
)
from cordbundle.opening import open_file as open
from cordbundle.ptd import PtdFile
from cordbundle.ptd_writer import load_ptd, save_ptd, serialize_ptd
from cordbundle.pte import Delegate, Method, PteFile, TensorSpec, ValueSpec
from cordbundle.pte_writer import serialize_pte
from cordbundle.rewriting import PteEditor, Rewrite, rewrite
from cordbundle.suites import MethodTestCase, MethodTestSuite
from cordbundle.tensors import ScalarType, TensorView
from cordbundle.weights import ptd_from_safetensors
from cordbundle.writer import WriteReport, write, write_all

__all__ = [
    "Bundle",
    "BundleFile",
    "CaseMismatchError",
    "Cord",
    "CordBundleError",
    "DataEntry",
    "DataPayload",
    "Delegate",
    "DuplicateKeyError",
    "Finding",
    "FormatError",
    "IntegrityError",
    "Layout",
    "LayoutError",
    "Method",
    "MethodTestCase",
    "MethodTestSuite",
    "NamedDataStore",
    "NamedDataStoreOutput",
    "Placement",
    "PtdFile",
    "PteEditor",
    "PteFile",
    "Rewrite",
    "ScalarType",
    "Segment",
    "SegmentRange",
    "SourceChangedError",
    "TensorLayout",
    "TensorSpec",
    "TensorView",
    "TooLargeError",
    "TruncatedError",
    "UnsupportedVersionError",
    "ValueSpec",
    "WriteError",
    "WriteReport",
    "bundle",
    "load_ptd",
    "open",
    "ptd_from_safetensors",
    "rewrite",
    "save_ptd",
    "serialize_ptd",
    "serialize_pte",
    "write",
    "write_all",
]
