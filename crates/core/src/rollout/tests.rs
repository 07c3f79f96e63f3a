use super::*;

/// `n1 n2:5+ n3:5.@a`: a name; its assignment (`R`: restore) with `+` in flight, `.` done, `!` failed, `?` failed and to be
/// retried, `u` unknown, `b` blocked, `B` blocked and to be retried, `x` failed as before, `X` so and to be retried, `n` bootstrapping, `f` foreign; `@` and a zone. Before the
/// name: `=` changes in place, `!` not ready for a minute, `?` for an hour, `~` unresponsive, `>` in flight for too long, `-`
/// restores regardless of the others' goal, `^` control plane, `#` being removed, `%` revoked, `*` the only canaries, `/` its
/// assignment can't be written yet, `|` it could not be written before, `&` it failed an earlier revision, `,` its agent doesn't run,
/// `_` for a while, `;` it is about to be replaced, `$` not ready again and again.
pub(super) fn members(goal: Goal, text: &str) -> Vec<Member> {
    const MARKS: [char; 17] = [
        '!', '?', '~', '>', '-', '^', '#', '%', '*', '=', '/', '|', '&', '_', ',', ';', '$',
    ];
    let words = || text.split_whitespace();
    let has = |word: &str, mark| word.starts_with(mark);
    let named = words().any(|word| word.contains('*'));
    let all_last = words().all(|word| has(word, '^'));
    words()
        .map(|word| {
            let is = |mark| has(word, mark);
            let rest = word.trim_start_matches(MARKS);
            let (rest, zone) = rest.split_once('@').unwrap_or((rest, ""));
            let (mut retry, mut has_failed_before) = (false, is('&'));
            let assigned = rest.split_once(':').map(|(_, assigned)| {
                let (goal, progress) = assigned.split_at(assigned.len() - 1);
                let goal = match goal.parse() {
                    Ok(0) => Goal::Revision(Revision::NONE),
                    Ok(number) => revision(number),
                    Err(_) => Goal::Restore,
                };
                retry = matches!(progress, "?" | "B" | "X");
                has_failed_before |= matches!(progress, "x" | "X");
                let progress = match progress {
                    "+" => Progress::InFlight,
                    "." => Progress::Done,
                    "n" => Progress::Bootstrapping,
                    "f" => Progress::Foreign,
                    "u" => Progress::Unknown,
                    "b" | "B" => Progress::Blocked,
                    _ => Progress::Failed,
                };
                (goal, progress)
            });
            Member {
                name: rest.split(':').next().unwrap_or_default().to_owned(),
                goal: if is('-') { Goal::Restore } else { goal },
                not_ready: match word.chars().next() {
                    Some('!') => Some(SignedDuration::from_mins(1)),
                    Some('?') => Some(SignedDuration::from_hours(1)),
                    Some('$') => Some(SignedDuration::ZERO),
                    _ => None,
                },
                unable: match word.chars().next() {
                    Some('!' | ',') => Some(SignedDuration::from_mins(1)),
                    Some('?' | '_' | '$') => Some(UNRESPONSIVE_AFTER),
                    _ => None,
                },
                assigned,
                assigned_for: match word.chars().next() {
                    Some('~') => UNRESPONSIVE_AFTER,
                    Some('>') => DEADLINE,
                    _ => SignedDuration::ZERO,
                },
                is_up_to_date: !is('~'),
                agent_down: match word.chars().next() {
                    Some(',') => Some(SignedDuration::ZERO),
                    Some('_') => Some(UNRESPONSIVE_AFTER),
                    _ => None,
                },
                awaits_agent: is(';'),
                is_revoked: is('%'),
                retry,
                has_failed_before,
                zone: zone.to_owned(),
                is_last: is('^'),
                is_canary: if named {
                    word.contains('*')
                } else {
                    all_last || !is('^')
                },
                is_skipped: is('#'),
                in_place: word.contains('='),
                refused: (is('/') || is('|')).then_some(Refused {
                    backs_off: is('/'),
                    lasts: true,
                }),
            }
        })
        .collect()
}

fn limit(text: &str) -> IntOrString {
    text.parse()
        .map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int)
}

pub(super) fn limits(max_unavailable: &str, max_failures: &str) -> api::Rollout {
    api::Rollout {
        max_unavailable: limit(max_unavailable),
        max_failures: limit(max_failures),
        ..api::Rollout::default()
    }
}

/// The names, revoked ones with a `-`.
fn line(goal: Goal, fleet: &str, limits: &api::Rollout) -> String {
    let members = members(goal, fleet);
    let next = next(&Fleet {
        members: &members,
        limits,
        canary_passed: false,
    });
    let revocations = next.revocations.iter().map(|name| format!("-{name}"));
    let words: Vec<String> = revocations.chain(next.assignments).collect();
    words.join(" ")
}

const fn revision(number: i64) -> Goal {
    Goal::Revision(Revision::new(number, RevisionId::from_random(7)))
}

pub(super) const FIVE: Goal = revision(5);

#[test]
fn the_next_members_are_those_that_the_limits_allow() {
    use Goal::Restore;
    #[rustfmt::skip]
    let cases = [
        ("a new revision goes to one member first", FIVE, "a b c", "2", "a"),
        ("and to no other while that one is in flight", FIVE, "a:5+ b c", "2", ""),
        ("not even to one that held a slot in vain before", FIVE, "a %b", "3", "a"),
        ("then up to the limit", FIVE, "a:5. b c d", "2", "b c"),
        ("each member that is done frees a slot", FIVE, "a:5. b:5+ c:5. d e", "2", "d"),
        ("a percentage refers to all members", FIVE, "a:5. b c d e f g h", "25%", "b c"),
        ("and is at least one member", FIVE, "a:5. b c", "10%", "b"),
        ("an invalid number is 1", FIVE, "a:5. b c", "many", "b"),
        ("nothing to do when all are done", FIVE, "a:5. b:5.", "2", ""),
        ("a failed member halts the rollout", FIVE, "a:5. b:5! c", "2", ""),
        ("a failure of an earlier revision does not", FIVE, "a:4! b:4.", "1", "a"),
        ("a NotReady member is passed over", FIVE, "!a b", "1", "b"),
        ("a member that dies in flight still counts for a while", FIVE, "!a:5+ b", "1", ""),
        ("then its assignment is revoked", FIVE, "?a:5+ b", "1", "-a b"),
        ("so is that of an unresponsive member", FIVE, "~a:5+ b", "1", "-a b"),
        ("and of one past its deadline, whatever it reports", FIVE, ">a:5+ b", "1", "-a b"),
        ("after a revocation all others go first", FIVE, "x:5. %a:4. b c", "2", "b c"),
        ("with it, where there is room", FIVE, "x:5. %a:4. b", "2", "b a"),
        ("then it goes, too", FIVE, "x:5. %a:4. b:5.", "2", "a"),
        ("a member that never reported gets no assignment", FIVE, "~a b", "2", "b"),
        ("a bootstrapping member takes no slot and is no canary", FIVE, "a:5n b c", "2", "b"),
        ("a blocked member takes no slot and halts nothing", FIVE, "a:5b b:5b c d", "1", "c"),
        ("a blocked member is retried after the others", FIVE, "a:5B b:5. c", "1", "c"),
        ("within the limit", FIVE, "a:5B b:5+ c:5.", "1", ""),
        ("a member whose assignment can't be written takes no slot, not even as the canary", FIVE, "/a b c", "1", "b"),
        ("and delays no control plane", FIVE, "/a b:5. ^c", "1", "c"),
        ("the others go before its next attempt", FIVE, "|a b c:5.", "1", "b"),
        ("which is made", FIVE, "|a b:5. c:5.", "1", "a"),
        ("a member with a foreign owner gets no assignment", FIVE, "a:5f b:5. c", "1", "c"),
        ("a failed member is retried on request and no longer counts", FIVE, "a:5? b:5. c", "1", "a"),
        ("while its kubelet is down it still counts: the retry can't start", FIVE, "?a:5? b:5. c", "2", ""),
        ("a member that failed an earlier revision, too, halts nothing", FIVE, "a:5x b c", "1", "b"),
        ("the next one that fails halts the rollout", FIVE, "a:5x b:5! c", "1", ""),
        ("a member that failed before goes after the others", FIVE, "&a:4! b:4. c:4. d:5.", "2", "b c"),
        ("but it goes", FIVE, "&a:4! b:5.", "1", "a"),
        ("once, unless someone asks for more", FIVE, "a:5x b:5.", "1", ""),
        ("who asks gets it", FIVE, "a:5X b:5.", "1", "a"),
        ("it counts as unavailable while its kubelet is down", FIVE, "!a:5x b:5. c", "1", ""),
        ("a restoration continues past one that refuses", Restore, "a:Rb b:5. c:5.", "1", "b"),
        ("and halts when a kubelet is left down", Restore, "a:R! b:5. c:5.", "1", ""),
        ("a deselected member restores after the others", FIVE, "-a:4. b:5. c", "1", "c"),
        ("within the same limit", FIVE, "-a:4. b:5. c:5+", "1", ""),
        ("one of them first", FIVE, "-a:4. -b:4. c:5.", "2", "a"),
        ("a deselected member in flight restores at once", FIVE, "-a:4+ b:5. c", "1", "a"),
        ("a failure to restore does not stop the others", FIVE, "-a:R! b:5. c", "1", "c"),
        ("a member that is done but not ready counts as unavailable", FIVE, "!a:5. b", "1", ""),
        ("so does one that failed and is not ready", FIVE, "!a:5? x:5. b", "1", ""),
        ("but not one that died before its assignment", FIVE, "!a:4. b:4.", "2", "b"),
        ("a new revision supersedes the one in flight", FIVE, "a b:4+ c", "1", "b"),
        ("a member in flight for the old revision counts", FIVE, "a:5. b:4+ c", "1", "b"),
        ("both fit into the limit", FIVE, "a:5. b:4+ c d", "2", "b c"),
        ("only one takes a revision before its canary passed", FIVE, "a:4+ b:4+ c", "2", "a"),
        ("restore goes to one first as well", Restore, "a:5. b:5. c", "2", "a"),
        ("a member that never had a revision needs no restore", Restore, "a:R. b c", "1", ""),
        ("a failed member is restored too", Restore, "a:5! b:R.", "1", "a"),
        ("a restored one takes a revision again", FIVE, "a:R. b:R.", "1", "a"),
        ("a member that is being removed is passed over", FIVE, "#a b", "1", "b"),
        ("a control-plane node is no canary", FIVE, "^a b", "1", "b"),
        ("and waits for all others", FIVE, "^a b:5. c", "2", "c"),
        ("including those in flight", FIVE, "^a b:5. c:5+", "2", ""),
        ("but not for those that are passed over", FIVE, "^a b:5. ?c #d e:5b ~f _g", "1", "a"),
        ("one that has just become NotReady may be back in a moment", FIVE, "^a b:5. !c:4.", "1", ""),
        ("as may an agent that has just stopped", FIVE, "^a b:5. ,c:4.", "1", ""),
        ("or is being replaced", FIVE, "^a b:5. ;c:4.", "1", ""),
        ("not that of a new node: another may always join", FIVE, "^a b:5. !c ,d ;e !f:0b", "1", "a"),
        ("nor one with the goal", FIVE, "^a b:5. ,c:5.", "1", "a"),
        ("nor one that flaps", FIVE, "^a b:5. $c:4.", "1", "a"),
        ("nor for the retry of a blocked one", FIVE, "^a b:5. c:5B", "1", "a"),
        ("nor for one that held a slot in vain", FIVE, "^a b:5. %c:4. &d:4!", "3", "a"),
        ("which does not start before it", FIVE, "^a b:5+ c:5. %d:4.", "3", ""),
        ("but after it", FIVE, "^a:5. b:5. %c:4. %d:4.", "2", "c d"),
        ("it goes alone", FIVE, "^a ^b ^c d:5. e:5. f:5.", "3", "a"),
        ("one after the other", FIVE, "^a:5+ ^b d:5. e:5.", "3", ""),
        ("if there is no other node it is the canary", FIVE, "^a ^b ^c", "3", "a"),
    ];
    for (case, goal, fleet, max_unavailable, expected) in cases {
        assert_eq!(
            line(goal, fleet, &limits(max_unavailable, "1")),
            expected,
            "{case}"
        );
    }
}

#[test]
fn a_revocation_that_cannot_be_written_frees_no_slot() {
    let mut fleet = members(FIVE, ">a:5+ b c:5.");
    let limits = limits("1", "1");
    for (backs_off, expected) in [(true, (0, 0)), (false, (1, 1))] {
        fleet[0].refused = Some(Refused {
            backs_off,
            lasts: true,
        });
        let next = next(&Fleet {
            members: &fleet,
            limits: &limits,
            canary_passed: true,
        });
        assert_eq!((next.assignments.len(), next.revocations.len()), expected);
    }
}

#[test]
fn batches_double_up_to_the_limit() {
    let mut states =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"].map(str::to_owned);
    let mut batches = Vec::new();
    loop {
        let started = line(FIVE, &states.join(" "), &limits("5", "1"));
        if started.is_empty() {
            break;
        }
        batches.push(started.split(' ').count());
        for name in started.split(' ') {
            let at = states.iter().position(|state| state == name);
            states[at.expect("a member")] = format!("{name}:5.");
        }
    }
    assert_eq!(batches, [1, 2, 5, 4]);
}

#[test]
fn only_members_whose_agent_can_begin_get_a_slot() {
    for (case, fleet, expected) in [
        ("one that starts gives its slot to another", ",a b c", "b"),
        ("one that is down, too", "_a b c", "b"),
        ("one that is about to be replaced, too", ";a b c", "b"),
        ("nobody is left", ",a _b ;c", ""),
        ("one in flight gets the newer goal", ",a:4+ b", "a"),
        ("a member that restores waits, too", "_-a:5. -b:5.", "b"),
    ] {
        assert_eq!(line(FIVE, fleet, &limits("1", "1")), expected, "{case}");
    }
    let limits = limits("1", "1");
    assert_eq!(line(FIVE, "=a:5. ,b= ;c= d=", &limits), "d=");
}

#[test]
fn canaries_go_before_all_others() {
    let mut limits = limits("3", "1");
    assert_eq!(line(FIVE, "a *b c", &limits), "b");
    assert_eq!(line(FIVE, "a *b:5+ c", &limits), "");
    assert_eq!(line(FIVE, "a *b:5. c", &limits), "a c");
    assert_eq!(
        line(FIVE, "a:5. b *c:4.", &limits),
        "c",
        "other members don't count as canaries"
    );
    limits.canary.nodes = 2;
    assert_eq!(line(FIVE, "a *b *c *d", &limits), "b");
    assert_eq!(line(FIVE, "a *b:5. *c *d", &limits), "c d");
    assert_eq!(line(FIVE, "a *b:5. *c:5. *d e f", &limits), "a d e");
    limits.canary.nodes = 5;
    assert_eq!(
        line(FIVE, "a *b:5.", &limits),
        "a",
        "more canaries requested than exist"
    );
    let nobody = members(FIVE, "a b");
    let nobody: Vec<Member> = nobody
        .into_iter()
        .map(|m| Member {
            is_canary: false,
            ..m
        })
        .collect();
    let fleet = Fleet {
        members: &nobody,
        limits: &limits,
        canary_passed: false,
    };
    assert_eq!(next(&fleet), Next::default(), "nobody replaces a canary");
    let passed = Fleet {
        canary_passed: true,
        ..fleet
    };
    assert_eq!(
        next(&passed).assignments,
        ["a"],
        "it passed before they left"
    );
}

#[test]
fn canaries_that_cant_change_delay_nothing_and_are_named() {
    let mut limits = limits("9", "2");
    limits.canary.nodes = 3;
    for (case, fleet, assigned, stuck) in [
        ("all canaries are needed", "*a:5. *b:5. *c d", "c", None),
        ("one is off for an hour", "*a:5. *b:5. ?*c d", "d", None),
        (
            "it may be back in a moment",
            "*a:5. *b:5. !*c d",
            "",
            Some("c"),
        ),
        ("it restarts for the change", "*a:5. !*b:5+ d", "", None),
        ("one died in flight", "*a:5. ?*b:5+ d", "-b d", None),
        ("one is blocked", "*a:5. *b:5b d", "d", None),
        ("one is foreign", "*a:5. *b:5f d", "d", None),
        ("one is excluded", "*a:5. #*b d", "d", None),
        ("one has no agent", "*a:5. _*b d", "d", None),
        ("one can't be written", "*a:5. /*b d", "d", None),
        ("one has failed", "*a:5. *b:5! d", "", Some("b")),
        ("and is retried", "*a:5. *b:5? d", "b", None),
        ("it failed an earlier one, too", "*a:5. *b:5x d", "d", None),
        (
            "nobody replaces the last one",
            "?*a *b:5f d",
            "",
            Some("a b"),
        ),
        ("one of them can go", "?*a *b d", "b", None),
    ] {
        assert_eq!(line(FIVE, fleet, &limits), assigned, "{case}");
        let members = members(FIVE, fleet);
        let found = stuck_canaries(&members, FIVE, &limits).map(|stuck| {
            let names: Vec<&str> = stuck.iter().map(|member| &*member.name).collect();
            names.join(" ")
        });
        assert_eq!(found.as_deref(), stuck, "{case}");
    }
    let nobody = members(FIVE, "^a b").into_iter().map(|member| Member {
        is_canary: false,
        ..member
    });
    let nobody: Vec<Member> = nobody.collect();
    let found = stuck_canaries(&nobody, FIVE, &limits);
    assert_eq!(found.map(|stuck| stuck.len()), Some(0), "no canary");
    let restoring = members(Goal::Restore, "a:5.");
    let found = stuck_canaries(&restoring, FIVE, &limits);
    assert!(found.is_none(), "nobody has the goal");
}

#[test]
fn disruption_is_spread_over_zones() {
    #[rustfmt::skip]
    let cases = [
        ("one of each", "x:5.@z a@1 b@1 c@2 d@2", "2", "a c"),
        ("by the share, not the number", "x:5.@1 y:5.@1 a@1 b@1 c@2 d@2", "3", "a b c"),
        ("those in flight count", "x:5.@z y:5.@z a:5+@1 b@1 c@2 d@2", "2", "c"),
        ("shares are compared without rounding", "x:5.@z a:5+@1 b@1 c@1 d@1 e@1 f@2 g@2 h@2", "2", "f"),
        ("one zone alone", "x:5. a b c", "2", "a b"),
    ];
    for (case, fleet, limit, expected) in cases {
        assert_eq!(line(FIVE, fleet, &limits(limit, "1")), expected, "{case}");
    }
}

#[test]
fn members_that_held_a_slot_in_vain_go_oldest_first() {
    let mut members = members(FIVE, "x:5. %a %b");
    members[1].assigned_for = SignedDuration::from_mins(1);
    members[2].assigned_for = SignedDuration::from_hours(1);
    let next = next(&Fleet {
        members: &members,
        limits: &limits("1", "1"),
        canary_passed: true,
    });
    assert_eq!(next.assignments, ["b"]);
}

#[test]
fn a_paused_rollout_assigns_nothing_and_still_revokes() {
    let mut limits = limits("2", "1");
    limits.paused = true;
    assert_eq!(line(FIVE, "a:5. b c ?d:5+", &limits), "-d");
}

#[test]
fn max_failures_halt_the_rollout_and_fewer_do_not() {
    let started = |max_failures| {
        let limits = limits("1", max_failures);
        line(FIVE, "a:5. b:5! c:5! d", &limits)
    };
    assert_eq!(started("2"), "");
    assert_eq!(started("3"), "d");
    assert_eq!(started("50%"), "", "2 of 4");
    assert_eq!(started("75%"), "d");
    assert_eq!(started("1%"), "", "at least one");
}

#[test]
fn members_that_change_in_place_go_at_once_after_the_canary() {
    #[rustfmt::skip]
    let cases = [
        ("the canary goes first", "=a =b =c", "a"),
        ("and alone", "=a:5+ =b =c", ""),
        ("then all others, whatever the limit", "=a:5. =b =c ^=d", "b c d"),
        ("an earlier goal is superseded", "=a:5. =b:4+ =c:4.", "b c"),
        ("those that restart go within the limit at the same time", "=a:5. =b =c d e", "b c d"),
        ("one in flight takes no slot", "=a:5. =b:5+ =c:5+ d e", "d"),
        ("one with an unknown assignment takes a slot", "=a:5. b:0u c", ""),
        ("a restart now does not use the slots of members that changed in place", "a:4+ b:4+ c:4. d", ""),
        ("a failure halts them, too", "=a:5. =b:5! =c", ""),
        ("one that is not ready waits", "=a:5. !=b =c", "c"),
        ("an unresponsive one is revoked", "=a:5. ~=b:5+ =c", "-b c"),
        ("one that is being removed gets nothing", "=a:5. #=b =c", "c"),
    ];
    for (case, fleet, expected) in cases {
        assert_eq!(line(FIVE, fleet, &limits("1", "1")), expected, "{case}");
    }
    let paused = api::Rollout {
        paused: true,
        ..limits("1", "1")
    };
    assert_eq!(line(FIVE, "=a:5. =b =c", &paused), "");
}

#[test]
fn limits_in_time_are_inclusive() {
    let moment = SignedDuration::from_secs(1);
    let member = |text: &str| members(revision(5), text).remove(0);
    let done = |not_ready| Member {
        not_ready: Some(not_ready),
        ..member("n:5.")
    };
    assert!(done(UNREACHABLE_AFTER - moment).is_unavailable());
    assert!(!done(UNREACHABLE_AFTER).is_unavailable());
    let in_flight = |not_ready| Member {
        not_ready: Some(not_ready),
        ..member("n:5+")
    };
    assert!(!in_flight(UNREACHABLE_AFTER - moment).is_timed_out());
    assert!(in_flight(UNREACHABLE_AFTER).is_timed_out());
    for (is_up_to_date, assigned_for, is_unresponsive, is_timed_out) in [
        (false, UNRESPONSIVE_AFTER, true, true),
        (false, UNRESPONSIVE_AFTER - moment, false, false),
        (true, UNRESPONSIVE_AFTER, false, false),
        (true, DEADLINE - moment, false, false),
        (true, DEADLINE, false, true),
    ] {
        let member = Member {
            assigned_for,
            is_up_to_date,
            ..member("n:5+")
        };
        let found = (member.is_unresponsive(), member.is_timed_out());
        assert_eq!(
            found,
            (is_unresponsive, is_timed_out),
            "{is_up_to_date} {assigned_for}"
        );
    }
}

#[test]
fn absent_unresponsive_skipped_and_blocked_members_are_passed() {
    for (text, is_passed_over) in [
        ("n:4.", false),
        ("n:5+", false),
        ("n:5!", false),
        ("n", false),
        ("!n:4.", true),
        ("~n:5+", true),
        (",n:4.", false),
        ("_n:4.", true),
        ("_n:5+", false),
        (";n:4.", false),
        ("#n:4.", true),
        ("n:5b", true),
        ("n:5f", true),
    ] {
        let member = members(revision(5), text).remove(0);
        assert_eq!(member.is_passed_over(), is_passed_over, "{text}");
    }
    let is_foreign = |text| members(revision(5), text).remove(0).is_foreign();
    assert!(is_foreign("n:5f") && !is_foreign("n:5.") && !is_foreign("n"));
}

/// The numbers in docs/leaked-password.md.
#[test]
fn two_hundred_members_take_this_many_batches() {
    for (limit, in_place, expected) in [
        ("10%", false, 13),
        ("25%", false, 8),
        ("50%", false, 7),
        ("1", false, 200),
        ("10%", true, 2),
    ] {
        let mark = if in_place { "=" } else { "" };
        let names = (0..200).map(|number| format!("{mark}n{number}:4."));
        let mut members = members(revision(5), &names.collect::<Vec<_>>().join(" "));
        let limits = limits(limit, "1");
        let mut batches = 0;
        loop {
            let next = next(&Fleet {
                members: &members,
                limits: &limits,
                canary_passed: false,
            });
            if next.assignments.is_empty() {
                break;
            }
            batches += 1;
            for member in &mut members {
                if next.assignments.contains(&member.name) {
                    member.assigned = Some((revision(5), Progress::Done));
                }
            }
        }
        assert_eq!(batches, expected, "{limit} {in_place}");
    }
}

#[test]
fn a_member_waits_in_place_while_it_may_get_its_goal_so() {
    let goal = revision(5);
    for (text, expected) in [
        ("=a:4.", true),
        ("=a", true),
        ("=a:5.", false),
        ("=a:5+", false),
        ("a:4.", false),
        ("a", false),
    ] {
        let found = members(goal, text).iter().any(Member::waits_in_place);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_member_that_failed_one_revision_is_known_by_it_until_it_reports_another() {
    let of = |number| Revision::new(number, RevisionId::from_random(7));
    let at = |number, progress| Some((Goal::Revision(of(number)), progress));
    for (before, assigned, is_synced, expected) in [
        (Revision::NONE, at(5, Progress::Failed), false, of(5)),
        (of(4), at(5, Progress::Failed), false, of(4)),
        (of(4), at(5, Progress::Done), false, of(4)),
        (of(4), at(5, Progress::Done), true, Revision::NONE),
        (of(4), at(5, Progress::InFlight), false, of(4)),
        (of(4), None, true, of(4)),
        (of(4), Some((Goal::Restore, Progress::Done)), true, of(4)),
    ] {
        let found = failed_revision(before, assigned, is_synced);
        assert_eq!(found, expected, "{before:?} {assigned:?} {is_synced}");
    }
    for (failed, goal, expected) in [
        (of(4), Goal::Revision(of(5)), true),
        (of(4), Goal::Restore, true),
        (of(5), Goal::Revision(of(5)), false),
        (Revision::NONE, Goal::Revision(of(5)), false),
    ] {
        let found = has_failed_another(failed, goal);
        assert_eq!(found, expected, "{failed:?} {goal:?}");
    }
}
