"""The side by side: the same bytes, the same servers, in turn, by ckptier and by its peers; scripts/bench runs it."""
