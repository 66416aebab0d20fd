"""What a failing system leaves behind, tried at every point; the long versions are commands."""
