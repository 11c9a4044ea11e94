# shellcheck shell=bash
# The admission queue, for bench/run: what its calls cost with few and with many tasks waiting.
#
# Three databases hold 100 tasks in one scope, 100,000 in one scope, and 100,000 in 1,000 scopes; a round measures the same
# calls in each of them in turn. Every transaction leaves as many tasks waiting as it found.

queue_calls=('enqueue + cancel' 'admit + cancel' 'dispatch of one' 'dispatch of 64' 'admit_wait one try' 'admit_wait + cancel')

queue_calls_of() {
	printf '\\set scope random(1, :scopes)\n\\set id random(1, 1000000000)\n'
	case $1 in
	'enqueue + cancel') printf "SELECT FROM rl_enqueue(:id::text, slot(:scope, 1));\nSELECT rl_cancel(:id::text);\n" ;;
	'admit + cancel') printf "SELECT FROM rl_admit(:id::text, slot(:scope, 1));\nSELECT rl_cancel(:id::text);\n" ;;
	# Into the line and out of it; and a slot that is free.
	'admit_wait one try') printf "CALL rl_admit_wait(:id::text, slot(:scope, 1), '0');\n" ;;
	'admit_wait + cancel') printf "CALL rl_admit_wait(:id::text, slot(0, 1000000));\nSELECT rl_cancel(:id::text);\n" ;;
	'dispatch of one')
		cat <<-'END'
			SELECT rl_release(lease_ids => ARRAY(SELECT lease_id FROM ratelimit.leases
				WHERE scope_type = 'bench' AND scope_key = :scope::text LIMIT 1));
			SELECT FROM rl_dispatch(1);
			SELECT FROM rl_enqueue(:id::text, slot(:scope, 1));
		END
		;;
	'dispatch of 64')
		cat <<-'END'
			SELECT count(rl_enqueue('wide' || :id::text || i, slot(0, 64))) FROM generate_series(1, 64) AS i;
			SELECT rl_release(lease_ids => ARRAY(SELECT lease_id FROM ratelimit.leases
				WHERE scope_type = 'bench' AND scope_key = '0'));
			SELECT FROM rl_dispatch(64);
		END
		;;
	esac
}

# fill_queue DATABASE TASKS SCOPES: as many waiting, behind one that holds the only slot of its scope.
fill_queue() {
	sql -d postgres -c "SET client_min_messages = error" -c "DROP DATABASE IF EXISTS $1" -c "CREATE DATABASE $1"
	sql -d "$1" -v tasks="$2" -v scopes="$3" <<-'END'
		CREATE EXTENSION ratelimit;
		CREATE FUNCTION slot(key bigint, lim int) RETURNS jsonb LANGUAGE sql AS $$
			SELECT jsonb_build_array(jsonb_build_object('scope_type', 'bench', 'scope_key', key::text, 'limit', lim, 'queue_limit', NULL,
				'lease_ttl_seconds', 31622400, 'max_wait_seconds', 31622400))
		$$;
		SELECT count(rl_admit('holder' || key, slot(key, 1), 'async')) AS holders FROM generate_series(1, :scopes) AS key \gset
		SELECT count(rl_enqueue('t' || i, slot(1 + i % :scopes, 1))) AS tasks FROM generate_series(1, :tasks) AS i \gset
		SELECT count(*) AS none FROM rl_dispatch(1) \gset
		VACUUM ANALYZE ratelimit.tasks, ratelimit.waiting, ratelimit.scopes, ratelimit.leases, ratelimit.awaited;
		CHECKPOINT;
	END
}

queue_rows() {
	local row file round shape
	heading '| call, one session | 100 waiting: ms | 100,000 in one scope: ms | times | 100,000 in 1,000 scopes: ms | times |' \
		"${queue_calls[@]}" || return 0
	fill_queue few 100 1
	fill_queue many 100000 1
	fill_queue wide 100000 1000
	for row in "${queue_calls[@]}"; do
		is_wanted "$row" || continue
		file=$(queue_calls_of "$row" | script queue_calls)
		printf '| %s ' "$row"
		# shellcheck disable=SC2154 # bench/run has the options
		for ((round = 0; round < rounds; round++)); do
			for shape in 'few 1' 'many 1' 'wide 1000'; do
				PGDATABASE=${shape% *} measure 1 "$file" "scopes=${shape#* }" | awk '{ printf "%s ", 1000 / $1 }'
			done
			echo
		done | awk '
			function median(column,   i, j, swap) {
				for (i = 1; i <= NR; i++) sorted[i] = value[column, i]
				for (i = 1; i < NR; i++) for (j = i + 1; j <= NR; j++)
					if (sorted[j] < sorted[i]) { swap = sorted[i]; sorted[i] = sorted[j]; sorted[j] = swap }
				return sorted[int((NR + 1) / 2)]
			}
			{ for (c = 1; c <= 3; c++) value[c, NR] = $c; value[4, NR] = $2 / $1; value[5, NR] = $3 / $1 }
			END { printf "| %.3f | %.3f | **%.2f** | %.3f | **%.2f** |\n", median(1), median(2), median(4), median(3), median(5) }'
	done
}
