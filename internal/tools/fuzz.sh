#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the root module for TIME, one after the other. A finding is left in the
# package's testdata/fuzz, to be committed with its fix. Inputs are minimised for a second at most: the default of
# a minute would be spent on one input that is merely new.
set -euo pipefail
time=${1:?usage: fuzz.sh TIME}
go=${GO:-go}
failed=() count=0
for pkg in $("$go" list ./...); do
  for target in $("$go" test -run '^$' -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
    echo "# $pkg $target"
    count=$((count + 1))
    "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$pkg" || failed+=("$pkg $target")
  done
done
echo "$count fuzz targets, ${#failed[@]} with findings"
[[ ${#failed[@]} == 0 ]] || { printf '%s\n' "${failed[@]}"; exit 1; }
