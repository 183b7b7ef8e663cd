//! Which worker belongs to which shard, and which shard to which server, by rendezvous hashing: whoever knows the same
//! shards and servers comes to the same answer, without a word between them. Where one is added or goes, few others move.

use std::collections::{BTreeMap, BTreeSet};
use windlass_core::hash::Fnv;
use windlass_core::ids::{ShardId, WHOLE_FARM};
use windlass_core::tags::{Attributes, SHARD};
use windlass_store::ServerShare;

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
/// those that may own some, by name.
///
/// 1. A pinned shard belongs to a server that pins it.
/// 2. No server gets more of the others than its part by weight, rounded up and with its pins counted.
/// 3. A server without weight gets none of the others, unless no server has a weight.
pub(crate) fn spread(
    shards: &BTreeSet<ShardId>,
    servers: &BTreeMap<String, ServerShare>,
) -> BTreeMap<ShardId, String> {
    let spread: Vec<ShardId> = shards.iter().copied().filter(|shard| *shard != WHOLE_FARM).collect();
    let mut weights: BTreeMap<&String, u64> =
        servers.iter().map(|(server, share)| (server, share.weight.into())).collect();
    if weights.values().all(|weight| *weight == 0) {
        weights.values_mut().for_each(|weight| *weight = 1);
    }
    let all = weights.values().sum::<u64>().max(1);
    let (mut owners, mut has) = (BTreeMap::new(), BTreeMap::<&String, u64>::new());
    for shard in &spread {
        let pinning = servers.iter().filter(|(_, share)| share.pins.contains(shard));
        if let Some((server, _)) = pinning.max_by_key(|(server, _)| share_score(*shard, server, 1)) {
            *has.entry(server).or_default() += 1;
            owners.insert(*shard, server.clone());
        }
    }
    for shard in &spread {
        if owners.contains_key(shard) {
            continue;
        }
        let with_room = weights.iter().filter(|(server, weight)| {
            let part = (spread.len() as u64 * **weight).div_ceil(all);
            has.get(*server).copied().unwrap_or(0) < part
        });
        if let Some((server, _)) =
            with_room.max_by_key(|(server, weight)| share_score(*shard, server, **weight))
        {
            *has.entry(*server).or_default() += 1;
            owners.insert(*shard, (*server).clone());
        }
    }
    owners
}

/// A server is a candidate for a shard as often as its weight says, and the best of these candidates counts.
fn share_score(shard: ShardId, server: &str, weight: u64) -> u64 {
    let mut key = Fnv::default();
    key.number(shard.0.into());
    let first = score(key, server.as_bytes());
    (1..weight).map(|candidate| score(key, format!("{server}\0{candidate}").as_bytes())).fold(first, u64::max)
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

    fn names(names: &[&str]) -> BTreeMap<String, ServerShare> {
        names.iter().map(|name| ((*name).to_owned(), ServerShare::default())).collect()
    }

    fn share(weight: u32, pins: &[u32]) -> ServerShare {
        ServerShare { weight, pins: pins.iter().copied().map(ShardId).collect() }
    }

    fn shares(shares: &[(&str, u32, &[u32])]) -> BTreeMap<String, ServerShare> {
        shares.iter().map(|(name, weight, pins)| ((*name).to_owned(), share(*weight, pins))).collect()
    }

    fn count_of(all: &BTreeMap<ShardId, String>, server: &str) -> usize {
        all.values().filter(|owner| *owner == server).count()
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
            assert_eq!(count_of(&all, server), 4, "{all:?}");
        }
        assert!(!all.contains_key(&WHOLE_FARM));
        let left = spread(&shards(13), &names(&["a", "b"]));
        assert!(left.values().all(|owner| owner != "c") && left.len() == 12);
        assert!(
            spread(&shards(13), &BTreeMap::new()).is_empty() && spread(&shards(1), &names(&["a"])).is_empty()
        );
    }

    #[test]
    fn shards_are_in_proportion_to_weights() {
        let all = spread(&shards(61), &shares(&[("a", 1, &[]), ("b", 2, &[]), ("c", 3, &[])]));
        assert_eq!([count_of(&all, "a"), count_of(&all, "b"), count_of(&all, "c")], [10, 20, 30]);
        let all = spread(&shards(13), &shares(&[("a", 0, &[]), ("b", 1, &[])]));
        assert_eq!(count_of(&all, "b"), 12);
        // Some server must have them.
        let all = spread(&shards(13), &shares(&[("a", 0, &[]), ("b", 0, &[])]));
        assert_eq!([count_of(&all, "a"), count_of(&all, "b")], [6, 6]);
        let few = spread(&shards(4), &shares(&[("a", 100, &[]), ("b", 1, &[]), ("c", 1, &[])]));
        assert!(count_of(&few, "a") >= 2 && few.len() == 3, "{few:?}");
    }

    #[test]
    fn a_pinned_shard_belongs_to_a_server_that_pins_it_and_counts_as_part_of_its_share() {
        let pins: &[u32] = &[2, 3, 4, 5, 6, 7, 99];
        let all = spread(&shards(13), &shares(&[("a", 1, pins), ("b", 1, &[]), ("c", 1, &[7])]));
        assert_eq!(all.len(), 12, "none is left out: {all:?}");
        for shard in 2..=6 {
            assert_eq!(all[&ShardId(shard)], "a");
        }
        assert!(["a", "c"].contains(&all[&ShardId(7)].as_str()));
        assert!((8..=13).all(|shard| all[&ShardId(shard)] != "a"), "it has more than its part: {all:?}");
        // The others' shards move little where a server pins one that it would have had.
        let free = spread(&shards(13), &names(&["a", "b"]));
        let mine = *free.iter().find(|(_, server)| *server == "a").unwrap().0;
        assert_eq!(spread(&shards(13), &shares(&[("a", 1, &[mine.0]), ("b", 1, &[])])).len(), 12);
        // One without weight has its pins alone.
        let all = spread(&shards(13), &shares(&[("a", 0, &[9]), ("b", 1, &[])]));
        assert_eq!((count_of(&all, "a"), all[&ShardId(9)].as_str()), (1, "a"));
        // The first shard stays with its owner.
        assert!(!spread(&shards(3), &shares(&[("a", 1, &[1])])).contains_key(&WHOLE_FARM));
    }

    #[test]
    fn servers_without_shares_have_the_shards_that_a_release_without_shares_gives_them() {
        let all = spread(&shards(7), &names(&["east", "west"]));
        let of_east: Vec<u32> =
            all.iter().filter(|(_, server)| *server == "east").map(|(id, _)| id.0).collect();
        assert_eq!(of_east, before(7, &["east", "west"], "east"));
    }

    /// The shards of a server as the release before had them.
    fn before(count: u32, servers: &[&str], of: &str) -> Vec<u32> {
        let part = (count as usize - 1).div_ceil(servers.len());
        let mut has: BTreeMap<&str, Vec<u32>> = servers.iter().map(|server| (*server, Vec::new())).collect();
        for shard in 2..=count {
            let mut key = Fnv::default();
            key.number(shard.into());
            let with_room = has.iter_mut().filter(|(_, shards)| shards.len() < part);
            let best = with_room.max_by_key(|(server, _)| score(key, server.as_bytes())).unwrap();
            best.1.push(shard);
        }
        has[of].clone()
    }
}
