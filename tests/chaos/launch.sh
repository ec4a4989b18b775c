#!/bin/sh
# What the harness starts: launch.sh FOLDER WHAT OUT has warm.py, which serves FOLDER, run a recipe, and ends as that
# ended.  It lends its streams, environment and folder, which warm.py takes from /proc.
mkfifo "$1/answer.$$"
(printf '%s\n' "$$ $2 $3" >"$1/asked") # in a shell of its own: in this one the stream would be another for a moment
read -r code <"$1/answer.$$"
rm "$1/answer.$$"
exit "$code"
