//! How many processes each task with a jobserver may run. Pure: cpus and claims in, a number for each claim out.
//!
//! A task always runs one process, so there may be more processes than cpus: as many more as there are tasks. Within
//! that, the smallest number of processes is chosen whose division is nearest to the weights. Two cpus and weights of
//! 3:1 are four processes, and equal weights two.
//!
//! Places are given one by one, each to the claim that is furthest behind its weight (the method of Sainte-Laguë). It
//! gives what the largest remainder gives in all but odd cases, and one place more never takes a place from a claim: a
//! token is not withdrawn because the pool grew.
//!
//! - Each claim has at least one process, and at most what it can use.
//! - There are at most `cpus` + claims processes.
//! - Cpus stay without a process only where all claims have what they can use.
//! - A claim that is alone has exactly the cpus.
//! - Of two claims that can use as much, the one with more weight has no less.

/// Tokens that lie ready for a task that takes none. ninja looks for tokens only when a process of its own ends, and
/// would grow by one process at a time if there were one.
const READY: u32 = 2;

/// What a task asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its part beside the weights of the others; at least 1.
    pub weight: u32,
    /// Processes that it may run at most; at least 1.
    pub most: u32,
    /// Processes that it runs.
    pub used: u32,
    /// Whether tokens lie ready that it does not take.
    pub is_idle: bool,
}

/// The number of processes of each claim. `cpus` is how many cpus all claims share.
pub fn divide(cpus: u32, claims: &[Claim]) -> Vec<u32> {
    let count = claims.len() as u32;
    let mut shares = vec![1; claims.len()];
    // What a task leaves goes to others only if another one takes it.
    let is_contended = claims.iter().any(|claim| !claim.is_idle && claim.used < claim.most);
    let cap = |claim: &Claim| match claim.is_idle && is_contended {
        true => claim.most.min(claim.used.saturating_add(READY)),
        false => claim.most,
    };
    let caps: Vec<u32> = claims.iter().map(|claim| cap(claim).max(1)).collect();
    // Tokens that lie ready keep no cpu busy, so the others may have as many more.
    let idle = claims.iter().zip(&caps).filter(|(claim, _)| claim.is_idle && is_contended);
    let ready: u32 = idle.map(|(claim, cap)| cap.saturating_sub(claim.used)).sum();
    let most = cpus.saturating_add(count);
    let least = cpus.saturating_add(if count > 1 { ready } else { 0 }).clamp(count, most);
    let mut total = count;
    let mut best: Option<(Distance, Vec<u32>)> = None;
    loop {
        if total >= least {
            let distance = Distance::of(claims, &shares, &caps);
            if best.as_ref().is_none_or(|(nearest, _)| distance.is_less(*nearest)) {
                best = Some((distance, shares.clone()));
            }
        }
        let Some(next) = furthest_behind(claims, &shares, &caps).filter(|_| total < most) else { break };
        shares[next] += 1;
        total += 1;
    }
    best.map_or(shares, |(_, nearest)| nearest)
}

/// The claim that gets the next place; `None` if all have what they can use.
fn furthest_behind(claims: &[Claim], shares: &[u32], caps: &[u32]) -> Option<usize> {
    let open = (0..claims.len()).filter(|place| shares[*place] < caps[*place]);
    open.reduce(|first, other| {
        let [a, b] = [first, other].map(|place| (u64::from(shares[place]) * 2 + 1, place));
        let is_behind = b.0 * u64::from(claims[a.1].weight) < a.0 * u64::from(claims[b.1].weight);
        if is_behind { other } else { first }
    })
}

/// How far a division is from the weights: the sum of the differences between each claim's part of the places and its
/// part of the weights, as a fraction. Claims that have all that they can use do not count.
#[derive(Clone, Copy)]
struct Distance {
    above: u128,
    below: u128,
}

impl Distance {
    fn of(claims: &[Claim], shares: &[u32], caps: &[u32]) -> Distance {
        let open = || {
            let all = claims.iter().zip(shares).zip(caps).filter(|((_, share), cap)| share < cap);
            all.map(|((claim, share), _)| (u128::from(claim.weight), u128::from(*share)))
        };
        let (weights, places) = open().fold((0_u128, 0_u128), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let above: u128 = open().map(|(weight, share)| (share * weights).abs_diff(weight * places)).sum();
        Distance { above, below: (weights * places).max(1) }
    }

    fn is_less(self, other: Distance) -> bool {
        self.above.saturating_mul(other.below) < other.above.saturating_mul(self.below)
    }
}

/// What further processes of a task would hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Processes that are not counted in what is free.
    pub used: u32,
    /// Bytes that one process of it holds.
    pub process_bytes: u64,
}

/// Takes processes that do not run yet away until the others fit into `free_bytes`. The claim that has most of them
/// loses first. What runs stays.
///
/// - A share never grows, and never falls below what runs, or below 1.
/// - What is left fits, or nothing that does not run is left.
pub fn fit_memory(free_bytes: u64, needs: &[Need], shares: &mut [u32]) {
    let further = |share: u32, need: &Need| share.saturating_sub(need.used.max(1));
    loop {
        let bytes = needs
            .iter()
            .zip(&*shares)
            .map(|(need, share)| u64::from(further(*share, need)).saturating_mul(need.process_bytes));
        if bytes.fold(0, u64::saturating_add) <= free_bytes {
            return;
        }
        let most = (0..needs.len()).max_by_key(|place| {
            let need = &needs[*place];
            if need.process_bytes == 0 { 0 } else { further(shares[*place], need) }
        });
        let Some(place) = most.filter(|place| further(shares[*place], &needs[*place]) > 0) else { return };
        shares[place] -= 1;
    }
}

/// Takes processes away, running ones too, until those that would end hold `lacking_bytes`. They end by themselves, and
/// no other begins in their place. The claim whose processes hold most loses first.
///
/// - A share never grows, and never falls below 1.
/// - No more processes are taken than that.
pub fn withhold(lacking_bytes: u64, needs: &[Need], shares: &mut [u32]) {
    let mut lacking = lacking_bytes;
    while lacking > 0 {
        let more = (0..needs.len()).filter(|place| shares[*place] > 1);
        let hold = |place: usize| u64::from(shares[place]).saturating_mul(needs[place].process_bytes);
        let Some(place) = more.max_by_key(|place| hold(*place)) else { return };
        shares[place] -= 1;
        lacking = lacking.saturating_sub(needs[place].process_bytes.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A task that takes all that it is given.
    fn hungry(weight: u32) -> Claim {
        Claim { weight, most: u32::MAX, used: 1, is_idle: false }
    }

    fn of_weights(cpus: u32, weights: &[u32]) -> Vec<u32> {
        divide(cpus, &weights.iter().map(|weight| hungry(*weight)).collect::<Vec<_>>())
    }

    #[test]
    fn a_build_alone_has_the_whole_machine_and_no_more() {
        assert_eq!(of_weights(16, &[7]), [16]);
        assert_eq!(of_weights(0, &[7]), [1]);
        let idle = Claim { is_idle: true, ..hungry(7) };
        assert_eq!(divide(16, &[idle]), [16], "no other task can use what it leaves");
        assert_eq!(divide(16, &[Claim { most: 4, ..hungry(7) }]), [4]);
    }

    #[test]
    fn the_fewest_processes_are_taken_that_show_the_weights() {
        assert_eq!(of_weights(2, &[1, 1]), [1, 1]);
        assert_eq!(of_weights(2, &[300, 100]), [3, 1]);
        assert_eq!(of_weights(8, &[300, 100]), [6, 2]);
        assert_eq!(of_weights(3, &[1, 1]), [2, 2]);
        assert_eq!(of_weights(2, &[3, 1, 1]), [3, 1, 1]);
        assert_eq!(of_weights(2, &[1; 7]), [1; 7]);
    }

    #[test]
    fn what_one_leaves_goes_to_the_others_but_for_two_that_lie_ready() {
        let link = Claim { is_idle: true, ..hungry(1) };
        // Its two tokens keep no cpu busy, so the other one keeps seven.
        assert_eq!(divide(8, &[link, hungry(1)]), [3, 7]);
        assert_eq!(divide(8, &[link, link]), [4, 4]);
        assert_eq!(divide(8, &[link, hungry(3), hungry(1)]), [2, 6, 2]);
    }

    #[test]
    fn memory_takes_away_what_does_not_run_yet() {
        let need = |used, process_bytes| Need { used, process_bytes };
        let mut shares = [4, 4];
        fit_memory(5, &[need(1, 2), need(3, 1)], &mut shares);
        assert_eq!(shares, [3, 4]);
        fit_memory(0, &[need(3, 2), need(3, 1)], &mut shares);
        assert_eq!(shares, [3, 3]);
        fit_memory(0, &[need(9, 2), need(0, 1)], &mut shares);
        assert_eq!(shares, [3, 1], "one process always runs");
    }

    #[test]
    fn what_is_lacking_is_taken_from_those_that_hold_most() {
        let need = |process_bytes| Need { used: 9, process_bytes };
        let taken = |lacking, needs: &[Need], shares: &[u32]| {
            let mut shares = shares.to_vec();
            withhold(lacking, needs, &mut shares);
            shares
        };
        assert_eq!(taken(0, &[need(5), need(5)], &[4, 4]), [4, 4]);
        assert_eq!(taken(1, &[need(5), need(5)], &[4, 3]), [3, 3], "part of a process is a process");
        assert_eq!(taken(9, &[need(5), need(2)], &[2, 4]), [1, 2]);
        assert_eq!(taken(99, &[need(5), need(2)], &[4, 4]), [1, 1], "one process always runs");
        assert_eq!(taken(3, &[need(0)], &[3]), [1], "of unknown size");
    }

    prop_compose! {
        fn claim()(weight in 1_u32..=1_000_000, most in 1_u32..40, used in 0_u32..50, is_idle in any::<bool>()) -> Claim {
            Claim { weight, most, used, is_idle }
        }
    }

    proptest! {
        #[test]
        fn the_bounds_hold(cpus in 0_u32..64, claims in prop::collection::vec(claim(), 1..12)) {
            let shares = divide(cpus, &claims);
            let (count, total) = (claims.len() as u32, shares.iter().sum::<u32>());
            prop_assert_eq!(shares.len(), claims.len());
            prop_assert!(total <= cpus + count, "{total}");
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!((1..=claim.most).contains(share));
            }
            // No cpu is left over while a task that takes what it is given could take more.
            let wants = claims.iter().zip(&shares).any(|(claim, share)| !claim.is_idle && *share < claim.most);
            prop_assert!(!wants || total >= cpus.max(count), "{total} of {cpus}: {shares:?}");
        }

        #[test]
        fn more_weight_is_no_less(cpus in 0_u32..64, weights in prop::collection::vec(1_u32..1_000, 2..8)) {
            let shares = of_weights(cpus, &weights);
            for (a, of_a) in weights.iter().zip(&shares) {
                for (b, of_b) in weights.iter().zip(&shares) {
                    prop_assert!(a <= b || of_a >= of_b, "{weights:?}: {shares:?}");
                }
            }
        }

        #[test]
        fn what_memory_leaves_fits(
            free in 0_u64..1_000,
            all in prop::collection::vec((0_u32..9, 0_u64..99, 1_u32..20), 1..6),
        ) {
            let needs: Vec<Need> = all.iter().map(|one| Need { used: one.0, process_bytes: one.1 }).collect();
            let before: Vec<u32> = all.iter().map(|one| one.2).collect();
            let mut shares = before.clone();
            fit_memory(free, &needs, &mut shares);
            let mut bytes = 0;
            for ((need, share), before) in needs.iter().zip(&shares).zip(&before) {
                prop_assert!(*share >= 1 && share <= before && *share >= need.used.min(*before));
                bytes += u64::from(share.saturating_sub(need.used.max(1))) * need.process_bytes;
            }
            prop_assert!(bytes <= free);
        }

        #[test]
        fn what_is_withheld_is_enough_and_no_more(
            lacking in 0_u64..500,
            all in prop::collection::vec((1_u64..99, 1_u32..20), 1..6),
        ) {
            let needs: Vec<Need> = all.iter().map(|one| Need { used: one.1, process_bytes: one.0 }).collect();
            let before: Vec<u32> = all.iter().map(|one| one.1).collect();
            let mut shares = before.clone();
            withhold(lacking, &needs, &mut shares);
            let mut bytes = 0;
            for ((need, share), before) in needs.iter().zip(&shares).zip(&before) {
                prop_assert!(*share >= 1 && share <= before);
                bytes += u64::from(before - share) * need.process_bytes;
            }
            let is_enough = bytes >= lacking || shares.iter().all(|share| *share == 1);
            prop_assert!(is_enough, "{bytes} of {lacking}: {shares:?}");
            let largest = needs.iter().map(|need| need.process_bytes).max().unwrap_or(0);
            prop_assert!(bytes == 0 || (lacking > 0 && bytes < lacking + largest), "{bytes} of {lacking}");
        }
    }
}
