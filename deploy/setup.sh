#!/usr/bin/env bash
# Installs what building, testing or benchmarking Shardis needs and the machine
# lacks. Usage: deploy/setup.sh [run|test|bench]...
#
#   run    redis-server                      (the demo)
#   test   run + chromium, haproxy, redis-py (make test)
#   bench  run + nutcracker (twemproxy)      (make bench)
#
# Go, Node.js 20 or newer with npm, and make must be there already. On Debian
# and Ubuntu the rest comes from apt (root or sudo); elsewhere this names what
# is missing and how to get it. What is there is left alone: the second run
# installs nothing.
set -euo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# need_tool COMMAND WHAT HOW: a tool this script does not install.
need_tool() {
	command -v "$1" >/dev/null 2>&1 || die "$2 is missing: $3"
}

missing=()
# need_package COMMAND[|COMMAND…] PACKAGE
need_package() {
	local command
	for command in ${1//|/ }; do
		command -v "$command" >/dev/null 2>&1 && return 0
	done
	missing+=("$2")
}

need_tool go "Go 1.26" "see https://go.dev/dl/"
need_tool node "Node.js" "install version 20 or newer, see https://nodejs.org/"
need_tool npm "npm" "it comes with Node.js, see https://nodejs.org/"
node_major=$(node -p 'process.versions.node.split(".")[0]')
[ "$node_major" -ge 20 ] || die "Node.js $node_major is too old to build the page: install version 20 or newer"

for part in "${@:-run}"; do
	case "$part" in
	run)
		need_package redis-server redis-server
		;;
	test)
		need_package redis-server redis-server
		need_package redis-cli redis-tools
		need_package gcc gcc # the race detector
		[ "$(uname)" = Darwin ] || {
			[ -x /usr/sbin/haproxy ] || need_package haproxy haproxy
			/usr/bin/python3 -c 'import redis' 2>/dev/null || missing+=(python3-redis)
		}
		[ "$(uname)" = Darwin ] || need_package "chromium|chromium-browser|google-chrome" chromium
		;;
	bench)
		need_package redis-server redis-server
		need_package redis-benchmark redis-tools
		need_package nutcracker nutcracker
		;;
	*) die "unknown part '$part': use run, test or bench" ;;
	esac
done
[ "${#missing[@]}" -gt 0 ] || exit 0

case "$(uname)" in
Darwin) die "missing: ${missing[*]}. Install with: brew install redis" ;;
esac
command -v apt-get >/dev/null 2>&1 ||
	die "missing: ${missing[*]}. This is not Debian or Ubuntu: install them with your package manager and run again"

root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null 2>&1 || die "missing: ${missing[*]}. Run as root, or: apt-get install ${missing[*]}"
	root=(sudo)
fi
say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${root[@]}" apt-get update && "${root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	die "apt-get could not install ${missing[*]}: see the lines above"
fi
