# shellcheck shell=bash
# Shared by ./try, test/run, test/load/ and bench/run: Debian packages, the build, private servers, TAP lines.
#
# Sourced with `set -euo pipefail`, never run. Everything that a script leaves behind for a moment, servers included,
# lives in one folder, $work, and goes with it when the script ends, however it ends.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pg_bin=/usr/lib/postgresql/15/bin
export PG_CONFIG=$pg_bin/pg_config
export LC_ALL=C.UTF-8
# shellcheck disable=SC2034 # for the scripts that read this file
build_packages=(postgresql-15 postgresql-server-dev-15 g++ make libboost-dev)
work=
servers=()

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Runs a command and shows its output only if it fails.
quietly() {
	local output status=0
	output=$("$@" 2>&1 </dev/null) || status=$?
	[ "$status" = 0 ] || printf '%s\nfailed with status %s: %s\n' "$output" "$status" "$*" >&2
	return "$status"
}

# --- who runs what -----------------------------------------------------------------------------------------------

as_root() {
	if [ "$EUID" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "need to be root, or sudo, for: $*"
	fi
}

as_user() {
	local user=$1
	shift
	setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"
}

# Builds as the owner of the checkout, so that root leaves no file there that its owner cannot replace.
as_owner() {
	local owner
	owner=$(stat -c %u "$top")
	if [ "$EUID" = 0 ] && [ "$owner" != 0 ]; then as_user "$owner" "$@"; else "$@"; fi
}

# The server refuses to run as root; postgres may not be able to read the checkout. So what runs with the server
# starts in $work and reads only what was copied there.
as_server() (
	cd "$work" || exit
	export HOME=$work
	if [ "$EUID" = 0 ]; then as_user postgres "$@"; else "$@"; fi
)

# --- packages and build ------------------------------------------------------------------------------------------

need_packages() {
	local package missing=()
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	echo "Installing Debian packages: ${missing[*]}"
	quietly as_root apt-get update -q
	quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
}

build() { as_owner make -s -j"$(nproc)" -C "$top" "$@"; }

# Installs the extension under $work and tells servers to look there first, so that a test run neither needs nor changes
# the system's own extension folder. (The second setting is for shared_preload_libraries.)
stage() {
	build "$@"
	make -s -C "$top" install DESTDIR="$work/stage"
	cat >"$work/stage.conf" <<END
extension_destdir = '$work/stage'
dynamic_library_path = '$work/stage$("$PG_CONFIG" --pkglibdir):\$libdir'
END
}

# --- the work folder and its servers -----------------------------------------------------------------------------

# Directly under /tmp: TMPDIR may be closed to the server's user, or too long for the path of a socket.
make_work() {
	work=$(mktemp -d "/tmp/ratelimit-$1.XXXXXX")
	[ "$EUID" != 0 ] || chown postgres: "$work"
	trap clean_up EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

clean_up() {
	local status=$? folder
	trap - EXIT
	for folder in "${servers[@]}"; do
		as_server "$pg_bin/pg_ctl" -s -D "$folder/data" -m immediate stop >/dev/null 2>&1 || true
	done
	cd /
	rm -rf "$work"
	exit "$status"
}

# start_server NAME [FILE...]: a new server in $work/NAME with its socket there, configured by the files; later
# commands of this shell find it through PGHOST.
start_server() {
	local folder=$work/$1
	shift
	unset "${!PG@}" 2>/dev/null || true
	export PG_CONFIG=$pg_bin/pg_config PGHOST=$folder PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
	as_server mkdir -m 700 "$folder"
	quietly as_server "$pg_bin/initdb" -D "$folder/data" -A trust -U postgres -E UTF8 --no-locale --no-sync
	{
		printf "listen_addresses = ''\nunix_socket_directories = '%s'\n" "$folder"
		cat "$@" </dev/null
	} >>"$folder/data/postgresql.conf"
	servers+=("$folder")
	if ! as_server "$pg_bin/pg_ctl" -s -w -D "$folder/data" -l "$folder/log" start </dev/null >/dev/null; then
		cat "$folder/log" >&2
		die "the server did not start"
	fi
}

# SQL on the server's private socket, from arguments or stdin; prints bare values.
# shellcheck disable=SC2120
sql() { as_server "$pg_bin/psql" -XAtq -v ON_ERROR_STOP=1 "$@"; }

# A script for psql or pgbench, where the server's user can read it: script NAME <text
script() {
	cat >"$work/$1.sql"
	chmod 644 "$work/$1.sql"
	echo "$work/$1.sql"
}

# --- results -----------------------------------------------------------------------------------------------------

# TAP lines are what test/run counts: is NAME EXPECTED FOUND
is() {
	if [ "$2" = "$3" ]; then
		echo "ok - $1"
	else
		printf 'not ok - %s\n#   expected: %s\n#   found:    %s\n' "$1" "$2" "$3"
	fi
}

# storm SCRIPT TRIES [NAME=VALUE...]: 64 sessions run the script TRIES times each; prints what went wrong, else nothing.
# pgbench ends a session at its first error.
storm() {
	local file=$1 tries=$2 variable defined=()
	shift 2
	for variable in "$@"; do defined+=(-D "$variable"); done
	as_server "$pg_bin/pgbench" -n -M prepared -c 64 -j 2 -t "$tries" "${defined[@]}" -f "$file" 2>&1 |
		grep -iE 'error|aborted|failed' | grep -v 'failed transactions: 0 ' || true
}

# denial_wal FUNCTION: how much write-ahead log 1,000 denials by that function write, after a checkpoint and one warm
# read. The server logs something of its own now and then (running transactions, a vacuum): that may spoil one try.
denial_wal() {
	local found
	for _ in 1 2 3; do
		# shellcheck disable=SC2119
		found=$(sql <<-END
			CHECKPOINT;
			SELECT FROM rl_consume('load', 'denied', 'requests', 1, 1, 31622400);
			SELECT FROM $1('load', 'denied', 'requests', 1, 1, 31622400);
			SELECT pg_current_wal_insert_lsn() AS before \gset
			SELECT count(*) FILTER (WHERE NOT allowed) AS denied
			  FROM generate_series(1, 1000) AS i, LATERAL $1('load', 'denied', 'requests', 1, sign(i), 31622400) \gset
			SELECT :denied || ' denied, ' || pg_wal_lsn_diff(pg_current_wal_insert_lsn(), :'before') || ' bytes';
		END
		)
		[ "$found" != '1000 denied, 0 bytes' ] || break
	done
	echo "$found"
}
