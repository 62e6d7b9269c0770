#!/usr/bin/env bash
# cross.sh: vet of the root module, with its tests, for other platforms, then its tests as a 32-bit program. All
# platforms are tried before it fails. Where qemu's user emulation is installed (Debian: qemu-user-static), the tests
# also run on a big-endian machine.
set -uo pipefail
go=${GO:-go}
export CGO_ENABLED=0
failed=()
for platform in linux/386 linux/arm64 linux/s390x linux/riscv64 darwin/arm64 windows/amd64 freebsd/amd64; do
  echo "# $platform"
  GOOS=${platform%/*} GOARCH=${platform#*/} "$go" vet ./... || failed+=("vet for $platform")
done
if [[ $("$go" env GOHOSTOS)/$("$go" env GOHOSTARCH) == linux/amd64 ]]; then
  GOARCH=386 "$go" test -short ./... || failed+=("tests on linux/386")
fi
if qemu=$(command -v qemu-s390x-static || command -v qemu-s390x); then
  GOARCH=s390x "$go" test -short -exec "$qemu" ./... || failed+=("tests on linux/s390x")
fi
[[ ${#failed[@]} == 0 ]] || { printf 'cross: %s failed\n' "${failed[@]}" >&2; exit 1; }
