"""From quantities and a rate card to amounts: exact fractions inside, divided once, into a decimal, at the end."""
