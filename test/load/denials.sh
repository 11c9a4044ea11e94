# shellcheck shell=bash
# A denial writes nothing: after a checkpoint and one warm read, 1,000 of them leave the write-ahead log where it was.

for function in rl_check rl_consume rl_reserve; do
	is "$function: 1,000 denials write no WAL" '1000 denied, 0 bytes' "$(denial_wal "$function")"
done
