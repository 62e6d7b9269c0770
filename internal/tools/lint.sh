#!/usr/bin/env bash
# lint.sh MODULE...: gofmt of all Go code, go vet and staticcheck of the root and of the nested modules named.
# staticcheck's version is that of internal/tools/go.mod.
set -euo pipefail
go=${GO:-go}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

failed=0
unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | xargs -r gofmt -l)
if [[ -n $unformatted ]]; then
  printf 'not formatted by gofmt:\n%s\n' "$unformatted" >&2
  failed=1
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd internal/tools && "$go" build -o "$bin/staticcheck" honnef.co/go/tools/cmd/staticcheck)

CGO_ENABLED=0 "$go" vet ./... || failed=1
CGO_ENABLED=0 "$bin/staticcheck" ./... || failed=1
for dir in "$@"; do
  (cd "$dir" && "$go" vet ./...) || failed=1
  (cd "$dir" && "$bin/staticcheck" ./...) || failed=1
done
exit $failed
