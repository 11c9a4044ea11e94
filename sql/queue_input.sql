-- Bad input of the admission queue, and that it changes nothing.
CALL test.begin();
SELECT test.values() AS before \gset
SELECT test.error(format('SELECT rl_admit(''t'', %L)', scopes)) FROM (VALUES
	(NULL), ('null'), ('{}'), ('[1]'), ('[{}]'), ('[{"scope_type": "a"}]'), ('[{"scope_type": "a", "scope_key": "b"}]'),
	('[{"scope_type": "a", "scope_key": "b", "limit": 1, "Limit": 2}]'), ('[{"scope_type": "a", "scope_key": "b", "limit": "1"}]'),
	('[{"scope_type": "a", "scope_key": "b", "limit": -1}]'), ('[{"scope_type": "a", "scope_key": "b", "limit": 1e400}]'),
	('[{"scope_type": "a", "scope_key": " ", "limit": 1}]'), ('[{"scope_type": "a", "scope_key": null, "limit": 1}]'),
	('[{"scope_type": "a", "scope_key": "b", "limit": 1, "amount": 0}]'), ('[{"scope_type": "a", "scope_key": "b", "limit": 1, "amount": -1}]'),
	('[{"scope_type": "a", "scope_key": "b", "limit": 1, "queue_limit": 1.5}]'), ('[{"scope_type": "a", "scope_key": "b", "limit": 1, "queue_limit": -1}]'),
	('[{"scope_type": "a", "scope_key": "b", "limit": 1, "max_wait_seconds": 0}]'), ('[{"scope_type": "a", "scope_key": "b", "limit": 1, "lease_ttl_seconds": 31622401}]'),
	('[{"scope_type": "a", "scope_key": "b", "limit": 1, "fifo": "yes"}]'), ('[{"scope_type": "a", "scope_key": "b", "limit_from": "heaven"}]'),
	('[{"scope_type": "ratelimit.queue", "scope_key": "b", "limit": 1}]')) v (scopes);
SELECT test.error(format('SELECT rl_admit(''t'', (SELECT jsonb_agg(test.scope(i::text, 1)) FROM generate_series(1, 1001) i))'));
-- Null where there is a default means the default, and what nothing reads may be anything.
SELECT test.stand(rl_admit('t', '[{"scope_type": "a", "scope_key": "b", "limit": null, "amount": null, "lease_ttl_seconds": null, "queue_limit": null,
	"max_wait_seconds": null, "fifo": null, "limit_from": null, "scope_name": 1, "metadata": [], "policy": {}}]', NULL, NULL, NULL));
SELECT rl_cancel('t', NULL, NULL);
CALL test.begin();
SELECT test.error(statement) FROM (VALUES
	('SELECT rl_admit(NULL, ''[]'')'), ('SELECT rl_admit('''', ''[]'')'), ('SELECT rl_admit(repeat(''x'', 513), ''[]'')'), ('SELECT rl_admit(''t'', ''[]'', ''both'')'),
	('SELECT rl_admit(''t'', ''[]'', waiter_id => '' '')'), ('SELECT rl_enqueue(NULL, ''[]'')'), ('SELECT rl_rebind(''t'', NULL)'),
	('SELECT rl_dispatch(0)'), ('SELECT rl_dispatch(10001)'), ('SELECT rl_waiting(0)'), ('SELECT rl_waiting(1, ''x'')'), ('SELECT rl_status(NULL)'),
	('SELECT rl_defer('' '')'), ('SELECT rl_cancel(''t'', outcome => ''succeeded'')'), ('SELECT rl_cancel(NULL)'), ('SELECT rl_renew_waiters(NULL, ''{}'')'),
	('SELECT rl_renew_waiters(''{a}'', ''{NULL}'')'), ('SELECT rl_renew_waiters(''{a,b}'', ''{a}'')')) v (statement);
SELECT test.values() = :'before' AS unchanged;
-- Without a single write: rl_status and rl_waiting work in a read-only transaction, the others do not.
BEGIN READ ONLY;
SELECT count(*) FROM rl_status('t'), rl_waiting();
SAVEPOINT s;
SELECT rl_admit('t', '[]');
ROLLBACK TO s;
SELECT rl_dispatch();
ROLLBACK;
