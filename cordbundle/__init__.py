"""Assemble ExecuTorch artifacts by reference: `.pte`, `.ptd` and `.bpte` files of any size."""

from __future__ import annotations

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
from cordbundle.opening import open_file as open
from cordbundle.ptd import PtdFile
from cordbundle.pte import Method, PteFile, TensorSpec, ValueSpec
from cordbundle.suites import MethodTestCase, MethodTestSuite
from cordbundle.tensors import ScalarType, TensorView
from cordbundle.writer import WriteReport, write, write_all

__all__ = [
    "Bundle",
    "BundleFile",
    "CaseMismatchError",
    "Cord",
    "CordBundleError",
    "DuplicateKeyError",
    "Finding",
    "FormatError",
    "IntegrityError",
    "Layout",
    "LayoutError",
    "Method",
    "MethodTestCase",
    "MethodTestSuite",
    "Placement",
    "PtdFile",
    "PteFile",
    "ScalarType",
    "Segment",
    "SourceChangedError",
    "TensorSpec",
    "TensorView",
    "TooLargeError",
    "TruncatedError",
    "UnsupportedVersionError",
    "ValueSpec",
    "WriteError",
    "WriteReport",
    "bundle",
    "open",
    "write",
    "write_all",
]
