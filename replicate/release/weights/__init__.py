"""From the entries of a state dict to the tensors of a release: torch lives here."""
