"""Rate cards: dated prices that a user read, strictly checked, never guessed."""
