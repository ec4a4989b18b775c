"""Every target: how it is measured, and what its figure is held against."""
