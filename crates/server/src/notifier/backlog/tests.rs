use super::*;
use proptest::prelude::*;
use windlass_store::NewNotice;

fn owed(number: u64, user: &str, to: &str) -> OwedNotice {
    let (user, to) = (user.to_owned(), to.to_owned());
    OwedNotice { number, notice: NewNotice { job: None, user, to, body: String::new(), at: Time(number) } }
}

/// Adds notices of a user to an address of a host.
fn fill(backlog: &mut Backlog, numbers: std::ops::Range<u64>, user: &str, to: &str, host: &str) -> Vec<u64> {
    numbers.flat_map(|number| backlog.add(owed(number, user, to), host)).collect()
}

/// All sends that may begin now.
fn begin(backlog: &mut Backlog, now: Instant) -> Vec<OwedNotice> {
    std::iter::from_fn(|| backlog.next(now)).collect()
}

fn numbers(all: &[OwedNotice]) -> Vec<u64> {
    all.iter().map(|owed| owed.number).collect()
}

#[test]
fn an_address_that_hangs_delays_no_other() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    assert_eq!(fill(&mut backlog, 1..10_001, "ann", "hangs", "slow"), [0; 0]);
    fill(&mut backlog, 10_001..10_004, "ann", "answers", "fast");
    let sends = begin(&mut backlog, now);
    assert_eq!(numbers(&sends), [1, 10_001, 2, 10_002, 3, 10_003, 4]);
    for owed in sends.iter().filter(|owed| owed.notice.to == "answers") {
        backlog.delivered(owed);
    }
    assert_eq!((backlog.len(), begin(&mut backlog, now).len()), (10_000, 0));
}

#[test]
fn an_address_that_fails_is_tried_with_one_notice_and_longer_pauses() {
    let (mut backlog, mut now) = (Backlog::default(), Instant::now());
    fill(&mut backlog, 1..100, "ann", "fails", "host");
    for owed in begin(&mut backlog, now) {
        backlog.failed(&owed, now);
    }
    assert_eq!(backlog.wakes(), Some(now + REST_MIN));
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert!(backlog.next(now).is_none());
        let until = backlog.wakes().unwrap();
        pauses.push(until - now);
        now = until;
        let sends = begin(&mut backlog, now);
        assert_eq!(numbers(&sends), [1], "the oldest is tried first, alone");
        backlog.failed(&sends[0], now);
    }
    assert!(pauses.is_sorted() && pauses.last() == Some(&REST_MAX), "{pauses:?}");
    // Once it answers, all go out.
    now = backlog.wakes().unwrap();
    let mut delivered = 0;
    loop {
        let sends = begin(&mut backlog, now);
        if sends.is_empty() {
            break;
        }
        delivered += sends.len();
        sends.iter().for_each(|owed| backlog.delivered(owed));
    }
    assert_eq!((delivered, backlog.len(), backlog.lines.len()), (99, 0, 0));
    assert!(backlog.hosts.is_empty() && backlog.users.is_empty());
}

#[test]
fn a_host_and_a_user_have_few_sends_under_way() {
    let (mut backlog, now) = (Backlog::default(), Instant::now());
    for number in 0..100 {
        let user = format!("user{}", number % 10);
        backlog.add(owed(number, &user, &format!("one-host/{number}")), "one-host");
        backlog.add(owed(1_000 + number, "ann", &format!("host{number}")), &format!("host{number}"));
    }
    let sends = begin(&mut backlog, now);
    let of_ann = sends.iter().filter(|owed| owed.notice.user == "ann").count();
    assert_eq!((of_ann, sends.len()), (USER_SENDS_MAX, USER_SENDS_MAX + HOST_SENDS_MAX));
}

#[test]
fn the_oldest_of_the_same_user_goes_where_there_are_too_many() {
    let mut backlog = Backlog::default();
    let max = USER_NOTICES_MAX as u64;
    fill(&mut backlog, 1..3, "bob", "b", "host");
    assert_eq!(fill(&mut backlog, 10..10 + max + 2, "ann", "a", "host"), [10, 11]);
    assert_eq!(backlog.len() as u64, max + 2);
    assert_eq!(backlog.expire(Time(3)).iter().map(|owed| owed.number).collect::<Vec<_>>(), [1, 2]);
    // Of all, the user with the most loses one.
    for user in 0..4 {
        let first = 100_000 * (user + 1);
        assert_eq!(fill(&mut backlog, first..first + max - 1, &format!("user{user}"), "u", "host"), [0; 0]);
    }
    assert_eq!(fill(&mut backlog, 900_000..900_004, "cyn", "c", "host"), [0; 0]);
    assert_eq!(fill(&mut backlog, 900_004..900_005, "cyn", "c", "host"), [12]);
    assert_eq!(backlog.len(), NOTICES_MAX);
}

proptest! {
    /// Whatever fails meanwhile, each notice is delivered once its address answers, and nothing is left behind.
    #[test]
    fn all_that_can_be_delivered_is(
        notices in prop::collection::vec((0..4_u64, 0..12_u64), 1..300),
        fails in prop::collection::vec(any::<bool>(), 0..400),
    ) {
        let (mut backlog, mut now) = (Backlog::default(), Instant::now());
        let mut fails = fails.into_iter();
        for (number, (user, to)) in (1..).zip(&notices) {
            backlog.add(owed(number, &user.to_string(), &to.to_string()), &(to % 3).to_string());
        }
        let (mut delivered, mut sends) = (BTreeSet::new(), VecDeque::new());
        loop {
            sends.extend(begin(&mut backlog, now));
            prop_assert!(sends.len() <= SENDS_MAX);
            match sends.pop_front() {
                Some(owed) if fails.next() == Some(true) => _ = backlog.failed(&owed, now),
                Some(owed) => {
                    prop_assert!(delivered.insert(owed.number), "each once");
                    backlog.delivered(&owed);
                }
                None => match backlog.wakes() {
                    Some(until) => now = until,
                    None => break,
                },
            }
        }
        prop_assert_eq!(delivered.len(), notices.len());
        prop_assert!(backlog.rows.is_empty() && backlog.lines.is_empty() && backlog.by_user.is_empty());
        prop_assert!(backlog.hosts.is_empty() && backlog.users.is_empty() && backlog.bytes == 0);
    }
}
