//! Which worker belongs to which shard, and which shard to which server, by rendezvous hashing: whoever knows the same
//! shards and servers comes to the same answer, without a word between them. Where one is added or goes, few others move.

use std::collections::{BTreeMap, BTreeSet};
use windlass_core::hash::Fnv;
use windlass_core::ids::{ShardId, WHOLE_FARM};
use windlass_core::tags::{Attributes, SHARD};

/// What says where a worker stands. No chunk has workers that differ in these.
const PLACE: [&str; 2] = ["facility", "pool"];
/// Chunks into which the workers of one place are divided by their names; a chunk is in one shard. Enough of them that shards
/// are about equal, and so few that they are a handful for each of 64 shards.
const CHUNKS: u64 = 64;

/// The shard that a worker with this name and these attributes belongs to.
pub(crate) fn shard_of_worker(name: &str, attributes: &Attributes, shards: &BTreeSet<ShardId>) -> ShardId {
    let pinned = attributes.get(SHARD).and_then(|values| values.first()?.parse().ok()).map(ShardId);
    if let Some(pinned) = pinned.filter(|shard| shards.contains(shard)) {
        return pinned;
    }
    let mut key = Fnv::default();
    for place in PLACE {
        for value in attributes.get(place).into_iter().flatten() {
            key.bytes(value.as_bytes());
            key.bytes(&[0]);
        }
        key.bytes(&[0]);
    }
    let mut chunk = Fnv::default();
    chunk.bytes(name.as_bytes());
    key.number(mixed(chunk) % CHUNKS);
    let rank = |shard: &&ShardId| score(key, &shard.0.to_le_bytes());
    shards.iter().max_by_key(rank).copied().unwrap_or(WHOLE_FARM)
}

/// The servers to which the shards of a farm belong, but for the first shard, which stays with its owner. `servers` are
/// those that may own some, by name. No server gets more than its part, rounded up.
pub(crate) fn spread(shards: &BTreeSet<ShardId>, servers: &BTreeSet<String>) -> BTreeMap<ShardId, String> {
    let spread: Vec<ShardId> = shards.iter().copied().filter(|shard| *shard != WHOLE_FARM).collect();
    let part = spread.len().div_ceil(servers.len().max(1));
    let mut has: BTreeMap<&String, usize> = servers.iter().map(|server| (server, 0)).collect();
    let mut owners = BTreeMap::new();
    for shard in spread {
        let mut key = Fnv::default();
        key.number(shard.0.into());
        let with_room = has.iter_mut().filter(|(_, count)| **count < part);
        if let Some((server, count)) = with_room.max_by_key(|(server, _)| score(key, server.as_bytes())) {
            *count += 1;
            owners.insert(shard, (*server).clone());
        }
    }
    owners
}

fn score(mut key: Fnv, candidate: &[u8]) -> u64 {
    key.bytes(candidate);
    mixed(key)
}

/// The high bits of the hash of a short text hardly differ, so it is mixed before it is compared (the end of SplitMix64).
fn mixed(hash: Fnv) -> u64 {
    let mut value = hash.value();
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(count: u32) -> BTreeSet<ShardId> {
        (1..=count).map(ShardId).collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn workers_are_about_equally_many_in_each_shard_and_few_move_when_one_is_added() {
        let of = |n: u32, count: u32| {
            shard_of_worker(&format!("render-{n}"), &Attributes::default(), &shards(count))
        };
        let mut counts = BTreeMap::<ShardId, u32>::new();
        (0..6_000).for_each(|n| *counts.entry(of(n, 6)).or_default() += 1);
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (200..2_500).contains(count)), "{counts:?}");
        let moved = (0..6_000).filter(|n| of(*n, 6) != of(*n, 7)).count();
        assert!((1..2_500).contains(&moved), "{moved} of 6000");
        assert!((0..6_000).all(|n| of(n, 6) == of(n, 7) || of(n, 7) == ShardId(7)));
    }

    #[test]
    fn a_worker_may_be_pinned_to_a_shard_that_is_there() {
        let pinned = |shard: &str| {
            let values = BTreeSet::from([shard.to_owned()]);
            shard_of_worker("w", &Attributes::from([(SHARD.to_owned(), values)]), &shards(4))
        };
        assert_eq!([pinned("1"), pinned("3"), pinned("4")], [ShardId(1), ShardId(3), ShardId(4)]);
        let free = shard_of_worker("w", &Attributes::default(), &shards(4));
        assert_eq!([pinned("5"), pinned("x"), pinned("")], [free; 3]);
        assert_eq!(shard_of_worker("w", &Attributes::default(), &BTreeSet::new()), WHOLE_FARM);
    }

    #[test]
    fn shards_are_spread_and_only_those_of_a_server_that_went_must_move() {
        let all = spread(&shards(13), &names(&["a", "b", "c"]));
        for server in ["a", "b", "c"] {
            assert_eq!(all.values().filter(|owner| *owner == server).count(), 4, "{all:?}");
        }
        assert!(!all.contains_key(&WHOLE_FARM));
        let left = spread(&shards(13), &names(&["a", "b"]));
        assert!(left.values().all(|owner| owner != "c") && left.len() == 12);
        assert!(
            spread(&shards(13), &BTreeSet::new()).is_empty() && spread(&shards(1), &names(&["a"])).is_empty()
        );
    }
}
