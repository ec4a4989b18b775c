"""Carrying a release to its place: a folder, a tier, the Hub; whole, checked again, or not at all."""
