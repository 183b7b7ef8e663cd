//! Turns at the cpus that builds use. A task with a jobserver, a build, books little, and its tokens are what no task has
//! booked. So another task could take these cpus at any time, and the build would get none back before tasks end: a
//! stream of tasks would keep it at one process, whatever the weights say. Therefore a task takes cpus that a build has a
//! use for only in the turn of its queue.
//!
//! Compared is how far each of the two queues is: by what its tasks have run, over its weight, and by what they will run in
//! the next [`AHEAD_MS`] with what they hold. The first makes the shares right over time. The second keeps them even at each
//! moment: without it a queue that is behind would get all cpus until it is ahead.
//!
//! Properties:
//! - Over time two queues that both want more have cpu time in the proportion of their weights.
//! - A queue's first task after it was idle goes out of turn, as it does elsewhere.
//! - A build of a higher band keeps what it uses, and one of a lower band nothing. A queue beyond its quota, or paused,
//!   keeps no more than its quota, or nothing.
//! - A queue gathers no credit while none of its builds wants more, and no more than [`CREDIT_MS`] of one worker.
//! - Where bookings cost one each (`charge = task`) the time of a build does not count, so no task waits for one.

use super::bands::USERS_BAND;
use super::by_user::{user_tags, with_user};
use super::fair::{Advance, Virtual};
use super::state::Queues;
use super::turn::QueueTags;
use crate::ids::QueueId;
use crate::time::{NS_PER_S, Time};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How far ahead is looked. Shares are even within about as many milliseconds after something changed.
const AHEAD_MS: i128 = 4_000;
/// How long no build of a queue must have wanted more for its wish to count as new: between two processes, and while it
/// links, a build wants no more for a moment.
const CONTENT_NS: u64 = 5 * NS_PER_S;
/// A queue may be behind another one by as much as all cpus of the worker run in this time.
const CREDIT_MS: i128 = 600_000;
/// When a task that waits for its turn is judged again.
const AGAIN_MS: RangeInclusive<u64> = 10..=1_000;

/// By how much virtual time a task of `asker` that takes `cpu` hundredths of a core is too early for cpus that a build of
/// `holder` uses; `None` if it is its turn. Both are parts of queues.
pub(crate) fn behind_build(queues: &Queues, asker: QueueId, holder: QueueId, cpu: u32) -> Option<Virtual> {
    // Inside one part its tasks come first: what a build gets there is what they leave.
    if asker == holder || queues.turns.counts_tasks() {
        return None;
    }
    let (asks, build) = (queues.get(queues.whole(asker)), queues.get(queues.whole(holder)));
    let is_beyond_quota = build.record.quota_cpu.is_some_and(|quota| {
        let left_cpu = held_cpu(&build.tags) - i128::from(cpu);
        left_cpu >= i128::from(quota)
    });
    if build.record.paused.is_some() || is_beyond_quota {
        return None;
    }
    match asks.band().cmp(&build.band()) {
        Ordering::Greater => None,
        Ordering::Less => Some(Virtual::MAX),
        Ordering::Equal => {
            let (asks, holds) = tags_of(queues, asker, holder)?;
            let cpu = i128::from(cpu);
            let gap = level(asks, queues.now, cpu) - level(holds, queues.now, -cpu);
            (gap > 0 && !is_first(asks, holds, queues.now)).then_some(gap)
        }
    }
}

/// True for a queue that begins after it was idle. A client that asks for one place after the other is idle between two, so
/// it must not have had more than the build either.
fn is_first(asks: &QueueTags, holds: &QueueTags, now: Time) -> bool {
    asks.is_express() && held_cpu(asks) == 0 && served(asks, now) <= served(holds, now)
}

/// Milliseconds until the turn comes of a task that is too early by `gap`, as far as that can be told: between
/// [`AGAIN_MS`].
pub(crate) fn again_ms(queues: &Queues, asker: QueueId, holder: QueueId, gap: Virtual) -> u64 {
    let Some((asks, holds)) = tags_of(queues, asker, holder) else { return *AGAIN_MS.end() };
    let runs = |tags: &QueueTags| tags.share.over_weight(held_cpu(tags));
    let nears = runs(holds) - runs(asks);
    if nears <= 0 {
        return *AGAIN_MS.end();
    }
    let ms = u64::try_from(gap / nears).unwrap_or(u64::MAX);
    ms.saturating_add(1).clamp(*AGAIN_MS.start(), *AGAIN_MS.end())
}

/// A task of `asker` is too early by `gap` for cpus of a worker with `worker_cpu` hundredths of a core. What the queue of the
/// build could not use, for example because it has builds on this worker alone, must not keep others waiting later.
pub(crate) fn limit_credit(
    queues: &mut Queues,
    (asker, holder): (QueueId, QueueId),
    gap: Virtual,
    worker_cpu: u32,
) {
    let Some((asks, holds)) = tags_of(queues, asker, holder).filter(|_| gap < Virtual::MAX) else { return };
    let credit = i128::from(worker_cpu) * CREDIT_MS;
    let over = gap - asks.share.over_weight(credit).max(holds.share.over_weight(credit));
    if over <= 0 {
        return;
    }
    let whole = queues.whole(holder);
    if queues.whole(asker) == whole {
        with_user(queues, holder, |users, tags| users.order.raise(holder, USERS_BAND, tags, over));
    } else {
        raise_whole(queues, whole, over);
    }
}

/// A build of a part of a queue wants more cpus than it has from now on, or no longer does.
pub(crate) fn note_wanting(queues: &mut Queues, id: QueueId, wants: bool) {
    let (now, whole) = (queues.now, queues.whole(id));
    let level = queues.turns.least(queues.get(whole).band()).filter(|least| *least != whole);
    let level = level.map(|least| served(&queues.get(least).tags, now));
    let users = queues.get(whole).users.as_ref();
    let level_inside = users.and_then(|users| users.order.least(USERS_BAND)).filter(|least| *least != id);
    let level_inside = level_inside.and_then(|least| Some(served(user_tags(queues, least)?, now)));
    // Tasks that count one each are in the order of these, and time does not move them.
    let is_by_time = !queues.turns.counts_tasks();
    if count_wish(&mut queues.all[whole.0 as usize].tags, wants, now) && is_by_time {
        let over = level.map_or(0, |level| level - served(&queues.get(whole).tags, now));
        raise_whole(queues, whole, over);
    }
    with_user(queues, id, |users, tags| {
        let is_new = count_wish(tags, wants, now) && is_by_time;
        let over = level_inside.filter(|_| is_new).map_or(0, |level| level - served(tags, now));
        if over > 0 {
            users.order.raise(id, USERS_BAND, tags, over);
        }
    });
}

/// Replaces what a place of an outside client adds to its queue.
pub(crate) fn change_place(queues: &mut Queues, id: QueueId, before: &Advance, after: &Advance) {
    with_user(queues, id, |_, tags| tags.places.change(before, after));
    let whole = queues.whole(id);
    queues.all[whole.0 as usize].tags.places.change(before, after);
}

/// Compares what queues and their users count of builds that want more, and of places, with these: by part.
///
/// # Errors
///
/// The first difference.
pub(crate) fn check_counts(
    queues: &Queues,
    wanting: &BTreeMap<QueueId, u32>,
    places: &BTreeMap<QueueId, Advance>,
) -> Result<(), String> {
    for (whole, queue) in queues.with_ids() {
        let (mut all_wanting, mut all_places) = (0, Advance::default());
        for part in queues.parts(whole) {
            let wants = wanting.get(&part).copied().unwrap_or(0);
            let holds = places.get(&part).copied().unwrap_or_default();
            all_wanting += wants;
            all_places.add(&holds);
            let is_wrong = |tags: &&QueueTags| tags.wanting != wants || tags.places != holds;
            if let Some(tags) = user_tags(queues, part).filter(is_wrong) {
                let user = queues.get(part).user();
                return Err(format!(
                    "queue {}, {user:?}: counts {tags:?}, not {wants}, {holds:?}",
                    queue.name()
                ));
            }
        }
        if queue.tags.wanting != all_wanting || queue.tags.places != all_places {
            let tags = &queue.tags;
            return Err(format!(
                "queue {}: counts {tags:?}, not {all_wanting}, {all_places:?}",
                queue.name()
            ));
        }
    }
    Ok(())
}

/// What two parts have of the turns that decide between them: of their queues, or inside their queue.
fn tags_of(queues: &Queues, asker: QueueId, holder: QueueId) -> Option<(&QueueTags, &QueueTags)> {
    let (asks, holds) = (queues.whole(asker), queues.whole(holder));
    if asks == holds {
        return user_tags(queues, asker).zip(user_tags(queues, holder));
    }
    Some((&queues.get(asks).tags, &queues.get(holds).tags))
}

/// Where a queue is by what its tasks and places ran, and would be after [`AHEAD_MS`] with `more_cpu` hundredths of a core
/// more than they hold.
fn level(tags: &QueueTags, now: Time, more_cpu: i128) -> Virtual {
    let cpu = (held_cpu(tags) + more_cpu).max(0);
    tags.share.served_with(now, tags.places.uncharged(now) + cpu * AHEAD_MS)
}

fn served(tags: &QueueTags, now: Time) -> Virtual {
    tags.share.served_with(now, tags.places.uncharged(now))
}

fn held_cpu(tags: &QueueTags) -> i128 {
    tags.share.advance.held_cpu() + tags.places.held_cpu()
}

/// Counts a build that wants more, or does no longer. True if nothing of the queue waited or wanted more for long.
fn count_wish(tags: &mut QueueTags, wants: bool, now: Time) -> bool {
    if wants {
        tags.wanting += 1;
        return tags.wanting == 1 && !tags.waits() && now.since(tags.content_since) >= CONTENT_NS;
    }
    tags.wanting = tags.wanting.saturating_sub(1);
    if tags.wanting == 0 {
        tags.content_since = now;
    }
    false
}

fn raise_whole(queues: &mut Queues, whole: QueueId, by: Virtual) {
    if by <= 0 {
        return;
    }
    let queue = &mut queues.all[whole.0 as usize];
    let band = queue.record.band();
    queues.turns.raise(whole, band, &mut queue.tags, by);
}
