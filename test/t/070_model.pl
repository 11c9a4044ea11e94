# Random sequences of calls in one session, held against a plain model written from the contract: every column of every
# answer, and the tables, exactly. The model knows nothing of how a call is granted, so it holds the one-step grants and
# the path through locks to the same answers. The session is one psql script, made here beforehand.
#
# SEED=n repeats a round; LONG=1 makes ten rounds, with the seeds that follow.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use List::Util qw(min max sum0);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{SEED} // int(rand(2**31));
my $rounds = $ENV{LONG} ? 10 : 1;
my $calls = 4_000;
diag("SEED=$seed");

# ----- the model: state, and what undoes a savepoint ----------------------------------------------------------------

my $epoch = 1893456000;    # 2030-01-01, in seconds; the clock counts from it
my $now   = 0;
my %counter;               # key -> { start, used, reserved, limit }
my %reservation;           # name -> { key, start, amount, status, actual, reason, attempt }
my %lease;                 # name -> { scope, expires, amount, ttl, attempt }
my %request;               # id -> { elements, names }
my @saved;

sub copy
{
	my ($value) = @_;
	return ref $value eq 'HASH' ? { map { $_ => copy($value->{$_}) } keys %$value }
	  : ref $value eq 'ARRAY'   ? [ map { copy($_) } @$value ]
	  :                           $value;
}
sub save { push @saved, copy({ c => \%counter, r => \%reservation, l => \%lease, q => \%request }); return }

sub restore
{
	my $state = copy($saved[-1]);
	%counter     = %{ $state->{c} };
	%reservation = %{ $state->{r} };
	%lease       = %{ $state->{l} };
	%request     = %{ $state->{q} };
	return;
}

sub fits { my ($total, $limit) = @_; return $total - $limit <= $limit * 1e-9 }

sub window
{
	my ($key, $seconds) = @_;
	my $start = int(($now + $epoch) / $seconds) * $seconds - $epoch;
	my $stored = $counter{$key};
	return $stored && $stored->{start} >= $start
	  ? { %$stored, reset => $stored->{start} + $seconds }
	  : { start => $start, used => 0, reserved => 0, reset => $start + $seconds };
}

sub live
{
	my ($scope) = @_;
	my @live = grep { $_->{scope} eq $scope && $_->{expires} > $now } values %lease;
	return (sum0(map { $_->{amount} } @live), min(map { $_->{expires} } @live));
}

sub place_of { my ($e) = @_; return $e->{metric} eq 'concurrent' ? $e->{key} : "$e->{key}/$e->{metric}/$e->{window}" }
sub kind_of
{
	my ($e) = @_;
	return !defined $e->{limit} || $e->{metric} eq 'queue_size' || $e->{amount} == 0 ? 'free'
	  : $e->{limit} == 0              ? 'blocked'
	  : $e->{metric} eq 'concurrent' ? 'lease'
	  :                                'window';
}

# The decision on a list of limits: one answer for each, and whether all pass.
sub decide
{
	my (@elements) = @_;
	my %sum;
	for my $e (@elements) { $sum{ place_of($e) } += $e->{amount} if kind_of($e) =~ /lease|window/ }
	my @answers;
	for my $e (@elements)
	{
		my $kind = kind_of($e);
		my $sum = $sum{ place_of($e) };
		my %a = (kind => $kind, retry => 0);
		if ($kind eq 'free') { }
		elsif ($kind eq 'blocked') { @a{qw(reason retry)} = ('limit_is_zero', undef) }
		elsif (!fits($sum, $e->{limit})) { @a{qw(reason retry)} = ('amount_exceeds_limit', undef) }
		elsif ($kind eq 'lease')
		{
			my ($used, $next) = live($e->{key});
			@a{qw(used reserved remaining reset)} = ($used, 0, max(0, $e->{limit} - $used), $next);
			@a{qw(reason retry)} = ('concurrency_saturated', max(1000, min(5000, 1000 * (($next // $now) - $now))))
			  unless fits($used + $sum, $e->{limit});
		}
		else
		{
			my $w = window(place_of($e), $e->{window});
			@a{qw(used reserved remaining start reset)} =
			  ($w->{used}, $w->{reserved}, max(0, $e->{limit} - $w->{used} - $w->{reserved}), $w->{start}, $w->{reset});
			@a{qw(reason retry)} = ('window_exhausted', max(1000, 1000 * ($w->{reset} - $now)))
			  unless fits($w->{used} + $w->{reserved} + $sum, $e->{limit});
		}
		push @answers, \%a;
	}
	my $allowed = !grep { defined $_->{reason} } @answers;
	return ($allowed, \%sum, @answers);
}

# Carries out what was decided; reservations and leases get the names "call.ordinal".
sub grant
{
	my ($what, $call, $task, $sum, $elements, $answers) = @_;
	my %limit;
	# A grant removes the leases of its scopes that are over (here they are never so many that some are left for the next),
	# which is seen when the clock goes back.
	for my $scope (map { $_->{key} } grep { kind_of($_) eq 'lease' } @$elements)
	{
		delete @lease{ grep { $lease{$_}{scope} eq $scope && $lease{$_}{expires} <= $now } keys %lease };
	}
	for my $i (0 .. $#$elements)
	{
		my ($e, $a) = ($elements->[$i], $answers->[$i]);
		next unless $a->{kind} =~ /lease|window/;
		my $place = place_of($e);
		$a->{remaining} = max(0, $a->{remaining} - $sum->{$place});
		if ($a->{kind} eq 'lease')
		{
			$lease{"$call.$i"} = { scope => $e->{key}, expires => $now + $e->{ttl}, amount => $e->{amount}, ttl => $e->{ttl}, attempt => '' };
			@$a{qw(lease expires)} = (1, $now + $e->{ttl});
			next;
		}
		my $w = window($place, $e->{window});
		$limit{$place} = min($limit{$place} // $e->{limit}, $e->{limit});
		$w->{ $what eq 'consume' ? 'used' : 'reserved' } += $e->{amount};
		$counter{$place} = { start => $w->{start}, used => $w->{used}, reserved => $w->{reserved}, limit => $limit{$place} };
		next if $what eq 'consume';
		$reservation{"$call.$i"} = { key => $place, start => $w->{start}, amount => $e->{amount}, status => 'reserved', actual => '', reason => '', attempt => '' };
		$a->{reservation} = 1;
	}
	return;
}

sub settle
{
	my ($name, $actual, $reason) = @_;
	my $r = $reservation{$name};
	return 0 unless $r && $r->{status} eq 'reserved';
	my $c = $counter{ $r->{key} };
	@$r{qw(status actual reason)} = defined $actual ? ('committed', $actual, 'success') : ('released', '', $reason);
	if ($c->{start} == $r->{start})
	{
		$c->{reserved} = max(0, $c->{reserved} - $r->{amount});
		$c->{used} += $actual // 0;
	}
	return 1;
}

# ----- the script: each call prints its number and its answer ---------------------------------------------------------

my (@script, @expected, @told);
my @names;    # names of all reservations and leases ever given, undone ones included

sub at { my ($s) = @_; return defined $s ? sprintf('%.6f', $s) : '' }
sub clock_sql { my ($column) = @_; return "to_char(extract(epoch FROM $column) - $epoch, 'FM999999990.000000')" }
my $answer_sql = join q{ || '|' || }, map { "coalesce(($_)::text, '')" } qw(ordinal allowed reason retryable retry_after_ms limit_value
  amount used reserved remaining), clock_sql('window_start'), clock_sql('reset_at'), 'reservation_id IS NOT NULL', 'lease_id IS NOT NULL',
  clock_sql('lease_expires_at');

sub number { my ($n) = @_; return defined $n ? $n + 0 : '' }
sub bool { return $_[0] ? 'true' : 'false' }

sub answer_lines
{
	my ($allowed, $elements, $answers) = @_;
	my @lines;
	for my $i (0 .. $#$elements)
	{
		my ($e, $a) = ($elements->[$i], $answers->[$i]);
		push @lines, join '|', $i + 1, bool($allowed), $a->{reason} // '', bool(defined $a->{retry}), $a->{retry} // '',
		  number($e->{limit}), number($e->{amount}), number($a->{used}), number($a->{reserved}), number($a->{remaining}), at($a->{start}),
		  at($a->{reset}), bool($a->{reservation}), bool($a->{lease}), at($a->{expires});
	}
	return join ' ; ', @lines;
}

sub expect
{
	my ($n, $sql, $answer) = @_;
	push @script, $sql;
	$expected[$n] = $answer;
	$told[$n] = $sql;
	return;
}

sub null { my ($v) = @_; return $v // 'NULL' }
sub element_json
{
	my ($e) = @_;
	return sprintf '{"scope_type": "t", "scope_key": "%s", "metric": "%s", "limit": %s, "amount": %s, "window_seconds": %d, "lease_ttl_seconds": %d}',
	  $e->{key}, $e->{metric}, $e->{limit} // 'null', $e->{amount}, $e->{window}, $e->{ttl};
}

# The name of a reservation or lease as SQL: what psql kept of the answer that gave it.
sub id_sql
{
	my ($name, $which) = @_;
	my ($call, $i) = split /\./, $name;
	return "(:'${which}_$call'::uuid[])[" . ($i + 1) . "]";
}
sub ids_sql { my ($which, @of) = @_; return 'ARRAY[' . join(', ', map { id_sql($_, $which) } @of) . ']::uuid[]' }

# ----- random choices -----------------------------------------------------------------------------------------------

sub pick { return $_[ int rand @_ ] }
sub some { my ($n, @of) = @_; return map { pick(@of) } 1 .. (@of ? 1 + int rand $n : 0) }

sub random_element
{
	my ($what) = @_;
	my $metric = pick(qw(rpm rpm rpm tpm), $what eq 'consume' ? () : qw(concurrent concurrent concurrent), rand() < 0.1 ? 'queue_size' : ());
	return {
		key => pick(qw(a a b c)), metric => $metric, limit => pick(1, 2, 3, 3, 4, 5, 8, rand() < 0.3 ? (0, undef) : ()),
		amount => pick(1, 1, 1, 2, 0.5, 1.125, $metric eq 'concurrent' ? 0.5 : 0.25, rand() < 0.2 ? (0, 9) : ()), window => pick(60, 60, 10), ttl => pick(5, 20, 120) };
}

sub one_or_list
{
	my ($n, $what) = @_;
	my @elements = map { random_element($what) } 1 .. pick(1, 1, 1, 2, 3, 4, rand() < 0.1 ? 0 : ());
	my $single = @elements == 1 && rand() < 0.7;
	my $request = $what eq 'reserve' && rand() < 0.15 ? (%request && rand() < 0.5 ? pick(sort keys %request) : "q$n") : undef;
	@elements = @{ copy($request{$request}{elements}) } if defined $request && $request{$request};
	$single = 0 if @elements != 1;
	my $quoted = defined $request ? "'$request'" : 'NULL';
	my $e = $elements[0];
	my $arguments = $single
	  ? sprintf("'t', '%s', '%s', %s, %s, %d", $e->{key}, $e->{metric}, null($e->{limit}), $e->{amount}, $e->{window})
	  . ($what eq 'reserve' ? ", $e->{ttl}, 'task $n', NULL, $quoted" : '')
	  : "'[" . join(', ', map { element_json($_) } @elements) . "]'" . ($what eq 'reserve' ? ", 'task $n', $quoted" : '');
	my $sql = "SELECT coalesce(string_agg($answer_sql, ' ; ' ORDER BY ordinal), '') AS answer, array_agg(reservation_id ORDER BY ordinal) AS r_$n,"
	  . " array_agg(lease_id ORDER BY ordinal) AS l_$n FROM rl_$what($arguments) \\gset\n\\qecho $n :answer";

	my ($allowed, $sum, @answers) = decide(@elements);
	if (defined $request && (my $known = $request{$request}))
	{
		for my $i (0 .. $#elements)
		{
			my $name = "$known->{call}.$i";
			my $a = $answers[$i];
			delete $a->{reason};
			$a->{retry} = 0;
			$a->{reservation} = 1 if $known->{reservations}{$i};
			$a->{lease} = 1 if $known->{leases}{$i};
			$a->{expires} = $lease{$name}{expires} if $lease{$name} && $lease{$name}{expires} > $now;
		}
		return expect($n, $sql, answer_lines(1, \@elements, \@answers));
	}
	if ($allowed && $what ne 'check')
	{
		grant($what, $n, "task $n", $sum, \@elements, \@answers);
		push @names, map { "$n.$_" } grep { $answers[$_]{reservation} || $answers[$_]{lease} } 0 .. $#answers;
		$request{$request} = { call => $n, elements => copy(\@elements), reservations => { map { $_ => 1 } grep { $answers[$_]{reservation} } 0 .. $#answers },
			leases => { map { $_ => 1 } grep { $answers[$_]{lease} } 0 .. $#answers } } if defined $request;
	}
	return expect($n, $sql, answer_lines($allowed, \@elements, \@answers));
}

sub recent { return @names > 12 ? (@names[ -12 .. -1 ], pick(@names)) : @names }
sub distinct { my %seen; return grep { !$seen{$_}++ } @_ }

sub commit_call
{
	my ($n) = @_;
	my @of = some(4, recent());
	my $actual = rand() < 0.5 ? pick(0, 0.5, 2, 3) : undef;
	my $settled = 0;
	for my $name (distinct(@of))
	{
		my $r = $reservation{$name} or next;
		my $given = defined $actual && $r->{key} =~ m{/rpm/} && $actual > 0 ? $actual : $r->{amount};
		$settled += settle($name, $given);
	}
	my $json = defined $actual ? qq{'{"rpm": $actual, "other": 1}'} : 'NULL';
	return expect($n, 'SELECT rl_commit(' . ids_sql('r', @of) . ", $json) AS answer \\gset\n\\qecho $n :answer", $settled);
}

sub release_lease
{
	my ($name) = @_;
	my $live = $lease{$name} && $lease{$name}{expires} > $now;
	delete $lease{$name} if $live;
	return $live ? 1 : 0;
}

sub release_call
{
	my ($n) = @_;
	my @r = some(2, recent());
	my @l = some(3, recent());
	my $leases       = sum0(map { release_lease($_) } distinct(@l));
	my $reservations = sum0(map { settle($_, undef, 'over') } distinct(@r));
	return expect($n, 'SELECT reservations, leases FROM rl_release(' . ids_sql('r', @r) . ', ' . ids_sql('l', @l) . ", 'over') \\gset\n\\qecho $n :reservations :leases",
		"$reservations $leases");
}

sub renew_call
{
	my ($n) = @_;
	my @of = some(4, recent());
	my $ttl = pick(undef, undef, 30);
	for my $name (distinct(@of))
	{
		my $l = $lease{$name};
		next unless $l && $l->{expires} > $now;
		$l->{ttl} = $ttl // $l->{ttl};
		$l->{expires} = max($l->{expires}, $now + $l->{ttl});
	}
	my @lines = map { my $l = $lease{ $of[$_] }; my $live = $l && $l->{expires} > $now; join '|', $_ + 1, bool($live), $live ? at($l->{expires}) : '' } 0 .. $#of;
	return expect($n, "SELECT coalesce(string_agg(ordinal || '|' || renewed || '|' || coalesce(" . clock_sql('expires_at') . ", ''), ' ; ' ORDER BY ordinal), '') AS answer FROM rl_renew("
		  . ids_sql('l', @of) . ', ' . null($ttl) . ") \\gset\n\\qecho $n :answer", join ' ; ', @lines);
}

sub attach_call
{
	my ($n) = @_;
	my @of = some(3, recent());
	my @r = grep { $reservation{$_} } distinct(@of);
	my @l = grep { $lease{$_} && $lease{$_}{expires} > $now } distinct(@of);
	$reservation{$_}{attempt} = "try $n" for @r;
	$lease{$_}{attempt} = "try $n" for @l;
	return expect($n, "SELECT reservations, leases FROM rl_attach('try $n', " . ids_sql('r', @of) . ', ' . ids_sql('l', @of) . ") \\gset\n\\qecho $n :reservations :leases",
		@r . ' ' . @l);
}

# The tables. Leases that are over may be there still or not; a scope's row sums up its lease rows, see drift().
my $tables_sql = "SELECT concat_ws(' # ',"
  . " (SELECT string_agg(scope_key || '/' || metric || '/' || window_seconds || '=' || used || ',' || reserved || ',' || limit_value || ',' || " . clock_sql('window_start')
  . ", ' ' ORDER BY scope_key, metric, window_seconds) FROM ratelimit.counters),"
  . " (SELECT string_agg(status || ',' || amount || ',' || coalesce(actual_amount::text, '') || ',' || coalesce(reason, '') || ',' || coalesce(attempt_id, ''), ' ' ORDER BY status, amount, actual_amount NULLS FIRST, reason, attempt_id NULLS FIRST)"
  . " FROM ratelimit.reservations),"
  . " (SELECT string_agg(scope_key || ',' || amount || ',' || ttl_seconds || ',' || " . clock_sql('expires_at') . " || ',' || coalesce(attempt_id, ''), ' ' ORDER BY scope_key, amount, expires_at, ttl_seconds, attempt_id NULLS FIRST)"
  . " FROM ratelimit.leases WHERE expires_at > to_timestamp(%s))) AS answer \\gset\n\\qecho %d :answer";

sub tables
{
	my ($n) = @_;
	my $c = join ' ', map { my $c = $counter{$_}; "$_=" . join ',', number($c->{used}), number($c->{reserved}), number($c->{limit}), at($c->{start}) }
	  sort { my @a = split m{/}, $a; my @b = split m{/}, $b; $a[0] cmp $b[0] || $a[1] cmp $b[1] || $a[2] <=> $b[2] } keys %counter;
	my $r = join ' ', map { join ',', @$_{qw(status amount actual reason attempt)} }
	  sort { $a->{status} cmp $b->{status} || $a->{amount} <=> $b->{amount} || ($a->{actual} eq '' ? -1 : $a->{actual}) <=> ($b->{actual} eq '' ? -1 : $b->{actual})
		  || $a->{reason} cmp $b->{reason} || $a->{attempt} cmp $b->{attempt} } values %reservation;
	my $l = join ' ', map { join ',', $_->{scope}, $_->{amount}, $_->{ttl}, at($_->{expires}), $_->{attempt} }
	  sort { $a->{scope} cmp $b->{scope} || $a->{amount} <=> $b->{amount} || $a->{expires} <=> $b->{expires} || $a->{ttl} <=> $b->{ttl} || $a->{attempt} cmp $b->{attempt} }
	  grep { $_->{expires} > $now } values %lease;
	return expect($n, sprintf($tables_sql, $now + $epoch, $n), join ' # ', grep { length } $c, $r, $l);
}

sub push_clock
{
	push @script, sprintf("SELECT set_config('ratelimit.clock', to_timestamp(%.6f)::text, false) \\gset", $now + $epoch);
	return;
}

sub set_clock
{
	$now = max(0, $now + pick(0.25, 1, 1, 3, 7, 20, 61, -1, -5, rand() < 0.2 ? (-130, 300) : ()));
	return push_clock();
}

# ----- one run -------------------------------------------------------------------------------------------------------

my %kinds = (reserve => 8, consume => 5, check => 3, commit => 5, release => 5, renew => 3, attach => 1, clock => 5, savepoint => 3, tables => 1);
my @bag = map { ($_) x $kinds{$_} } sort keys %kinds;
my %does = (
	(map { my $what = $_; $what => sub { one_or_list($_[0], $what) } } qw(reserve consume check)),
	commit => \&commit_call, release => \&release_call, renew => \&renew_call, attach => \&attach_call, tables => \&tables);

my $node = start_server('main', "log_statement = none\n");

sub make_script
{
	srand($seed);
	$now = 0;
	%counter = %reservation = %lease = %request = ();
	@saved = @script = @expected = @told = @names = ();
	push @script, '\pset format unaligned', '\pset tuples_only on', "SET TimeZone = 'UTC';", 'SET extra_float_digits = 1;';
	push_clock();
	my $transaction = 0;    # how deep: 0 none, 1 a transaction, 2 and more savepoints
	for (my $n = 1; $n <= $calls; $n++)
	{
		my $kind = pick(@bag);
		if ($kind eq 'clock') { set_clock(); redo if rand() < 0.9; $kind = 'check' }
		if ($kind eq 'savepoint')
		{
			if ($transaction == 0 || ($transaction < 4 && rand() < 0.5))
			{
				push @script, $transaction == 0 ? 'BEGIN;' : "SAVEPOINT s$transaction;";
				save();
				$transaction++;
			}
			elsif (rand() < 0.5)
			{
				restore();
				pop @saved;
				$transaction--;
				push @script, $transaction == 0 ? 'ROLLBACK;' : "ROLLBACK TO s$transaction;";
				# The clock is not part of the state: what a rollback undoes of it is set again.
				push_clock();
			}
			else
			{
				pop @saved;
				$transaction--;
				push @script, $transaction == 0 ? 'COMMIT;' : "RELEASE s$transaction;";
			}
			redo;
		}
		$does{$kind}->($n);
	}
	push @script, 'COMMIT;' if $transaction;
	tables($calls + 1);
	return;
}

sub run_script
{
	my $file = $node->basedir . "/calls_$seed.sql";
	append_to_file($file, join("\n", @script) . "\n");
	my ($out, $err) = ('', '');
	IPC::Run::run [ 'psql', '-Xq', '-d', $node->connstr('postgres'), '-f', $file ], '>', "$file.out", '2>', \$err;
	is($err, '', 'no call raises an error') or diag(substr $err, 0, 2000);

	my %found = map { /^(\d+) ?(.*)$/ ? ($1 => $2) : () } split /\n/, slurp_file("$file.out");
	my ($same, $first) = (0, undef);
	for my $n (1 .. $calls + 1)
	{
		if (defined $found{$n} && $found{$n} eq $expected[$n]) { $same++ }
		else { $first //= $n }
	}
	is($same, $calls + 1, "all $calls answers are those of the model, and the tables");
	diag("first difference, call $first of SEED=$seed:\n$told[$first]\nfound:    " . ($found{$first} // 'nothing') . "\nexpected: $expected[$first]") if defined $first;
	is(drift($node), '', 'aggregates and rows agree');
	my %outcome;
	$outcome{$_}++ for map { /^\d+\|(true|false)\|(\w*)/ ? "$1 $2" : () } map { split / ; /, $_ // '' } @expected;
	cmp_ok($outcome{$_} // 0, '>', $calls / 400, "... among them: $_") for 'true ', 'false window_exhausted', 'false concurrency_saturated', 'false limit_is_zero', 'false amount_exceeds_limit';
	return;
}

for my $round (1 .. $rounds)
{
	$node->safe_psql('postgres', 'TRUNCATE ratelimit.counters, ratelimit.reservations, ratelimit.requests, ratelimit.scopes, ratelimit.leases');
	make_script();
	run_script();
	$seed++;
}
$node->stop;
done_testing();
