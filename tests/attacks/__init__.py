"""A file for each attack on a reader of ExecuTorch's formats; README.md is the index."""
