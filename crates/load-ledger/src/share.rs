//! Entitlements to the slots of a pool: weighted max-min with caps, in integers alone.
//!
//! Each claim gets `min(demand, level * weight)`, with the level at which the pool is used up. All
//! comparisons are cross products in 128 bits, so nothing is rounded and no tolerance is needed until an exact
//! share is made whole. The remainder of that rounding is owed to the claim, and later rounds give it back.

/// A claim to slots of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Id of the claimant. [`Apportion`] keeps its debts by it.
    pub id: u64,
    /// Share relative to the others, of a queue from 1 to 10,000. A claim without weight is entitled to
    /// nothing and does not count.
    pub weight: u32,
    /// Slots that can be used: for a queue its running tasks and those that could run, at most its quota.
    pub demand: u64,
}

/// Slots for each unit of weight, as the exact fraction `num / den`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Slots that are left for the claims that get less than they want.
    pub num: u64,
    /// The weights of these claims together; 0 if every claim gets all that it wants, and slots are over.
    pub den: u64,
}

/// An exact share: `whole + part / of` slots, with `part < of`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The number of whole slots.
    pub whole: u64,
    /// Numerator of the fraction beyond them.
    pub part: u64,
    /// Denominator, at least 1.
    pub of: u64,
}

/// The level at which claims use up a pool of that many slots. Linear in the number of claims.
///
/// Claims in order of `demand / weight` are met in full up to some place and share the rest from there on.
/// That place is found by halving: once a claim would be met by an equal level of what is left before it, so
/// would every later one.
pub fn level(pool: u64, claims: &[Claim]) -> Level {
    // Without weight a claim is behind all others and adds nothing; without demand it would be anywhere.
    let mut open: Vec<(u64, u32)> =
        claims.iter().filter(|c| c.demand > 0).map(|c| (c.demand, c.weight)).collect();
    let mut open = open.as_mut_slice();
    let (mut num, mut den) = (pool, sums(open).1);
    while !open.is_empty() {
        let mid = open.len() / 2;
        let (before, &mut (demand, weight), after) =
            open.select_nth_unstable_by(mid, |a, b| product(a.0, b.1).cmp(&product(b.0, a.1)));
        let (met, weights) = sums(before);
        // The slots that all before it leave, and the weights of it and all after it.
        let rest = u128::from(num).checked_sub(met).filter(|rest| {
            u128::from(demand) * u128::from(den - weights) < u128::from(weight) * rest // it is met, too
        });
        match rest {
            // It is less than its part of the rest, so less than the rest, which is at most `num`.
            Some(rest) => (num, den, open) = (rest as u64 - demand, den - weights - u64::from(weight), after),
            None => open = before,
        }
    }
    if den == 0 { Level::default() } else { Level { num, den } }
}

/// Demands and weights together.
fn sums(claims: &[(u64, u32)]) -> (u128, u64) {
    claims.iter().fold((0, 0), |(demands, weights), (demand, weight)| {
        (demands + u128::from(*demand), weights + u64::from(*weight))
    })
}

fn product(a: u64, b: u32) -> u128 {
    u128::from(a) * u128::from(b)
}

impl Level {
    /// The pool is used up: no claim could have more without another having less.
    pub fn contended(self) -> bool {
        self.den > 0
    }

    /// The slots to which the claim is entitled.
    pub fn share(self, claim: &Claim) -> Share {
        let entitled = product(self.num, claim.weight);
        let whole = |whole| Share { whole, part: 0, of: self.den.max(1) };
        if claim.weight == 0 {
            whole(0)
        } else if u128::from(claim.demand) * u128::from(self.den) <= entitled {
            whole(claim.demand)
        } else if let Ok(entitled) = u64::try_from(entitled) {
            Share { whole: entitled / self.den, part: entitled % self.den, of: self.den }
        } else {
            let den = u128::from(self.den);
            // Both fit: the quotient is less than the demand.
            Share { whole: (entitled / den) as u64, part: (entitled % den) as u64, of: self.den }
        }
    }

    /// The weight that the claim counts with. A weight that entitles its claim to more than the claim wants is
    /// infeasible, and counts as the weight that entitles it to exactly that. With these weights the pool is
    /// divided in proportion to weight alone, and each claim has its share.
    ///
    /// `None` if each claim gets all that it wants: then no weight makes a difference.
    pub fn effective_weight(self, claim: &Claim) -> Option<f64> {
        if self.den == 0 {
            return None;
        }
        let wanted = u128::from(claim.demand) * u128::from(self.den);
        let feasible = wanted >= product(self.num, claim.weight);
        Some(if feasible { f64::from(claim.weight) } else { wanted as f64 / self.num as f64 })
    }
}

/// Makes shares whole, round after round: each claim gets its share rounded down, and the slots that are
/// then left over go one each to the claims that are owed most.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Apportion {
    /// The debts to the claims of the last round, by rising id, in `1 / den` slots. Negative: the claim had more.
    /// Few slots at most, so 64 bits do for a thousand million claims.
    credits: Vec<(u64, i64)>,
    den: u64,
}

/// Claims whose ids do not rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("claims must come by rising id, each once: {id} comes after {before}")]
pub struct Unordered {
    /// The id of the claim before.
    pub before: u64,
    /// The id that is not larger.
    pub id: u64,
}

impl Apportion {
    /// Whole slots for each claim, in the order of the claims, which come by rising id. Together they are as
    /// many as the pool has, or as the claims with a weight want if that is less. No claim gets more than it
    /// wants, and each its exact share rounded down or up. Equal credit: the smaller id.
    ///
    /// A claim that is absent from a round is owed nothing afterwards.
    pub fn slots(&mut self, pool: u64, claims: &[Claim]) -> Result<Vec<u64>, Unordered> {
        if let Some(pair) = claims.windows(2).find(|pair| pair[0].id >= pair[1].id) {
            return Err(Unordered { before: pair[0].id, id: pair[1].id });
        }
        let level = level(pool, claims);
        self.keep(level.den, claims);
        let mut slots = Vec::with_capacity(claims.len());
        let mut parts = 0;
        let mut rounded = Vec::new();
        for (place, (claim, (_, credit))) in claims.iter().zip(&mut self.credits).enumerate() {
            let share = level.share(claim);
            slots.push(share.whole);
            if share.part > 0 {
                parts += u128::from(share.part);
                *credit += share.part as i64;
                rounded.push((std::cmp::Reverse(*credit), place));
            }
        }
        // All shares together are whole, so this has no remainder; each part is less than a slot, so there
        // are more of them than slots.
        let over = (parts / u128::from(level.den.max(1))) as usize;
        if over > 0 {
            rounded.select_nth_unstable(over);
        }
        for (_, place) in rounded.into_iter().take(over) {
            slots[place] += 1;
            self.credits[place].1 -= level.den as i64;
        }
        Ok(slots)
    }

    /// Brings the credits to these claims and this denominator. Where each claim gets all, nothing is in
    /// parts and the old denominator stays.
    fn keep(&mut self, den: u64, claims: &[Claim]) {
        let (from, to) = (self.den, if den == 0 { self.den } else { den });
        let mut old = std::mem::take(&mut self.credits).into_iter().peekable();
        self.credits.reserve_exact(claims.len());
        for claim in claims {
            while old.next_if(|(id, _)| *id < claim.id).is_some() {}
            let credit = old.next_if(|(id, _)| *id == claim.id).map_or(0, |(_, credit)| credit);
            self.credits.push((claim.id, if from == to { credit } else { rescale(credit, from, to) }));
        }
        self.den = to;
    }
}

/// The same part of a slot with another denominator, rounded towards nothing.
fn rescale(credit: i64, from: u64, to: u64) -> i64 {
    (i128::from(credit) * i128::from(to) / i128::from(from.max(1))) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(pairs: &[(u32, u64)]) -> Vec<Claim> {
        (0..).zip(pairs).map(|(id, &(weight, demand))| Claim { id, weight, demand }).collect()
    }

    /// Exact shares as (whole, part), over the denominator of the level.
    fn shares(pool: u64, claims: &[Claim]) -> Vec<(u64, u64)> {
        let level = level(pool, claims);
        claims.iter().map(|c| level.share(c)).map(|share| (share.whole, share.part)).collect()
    }

    fn whole(slots: &[u64]) -> Vec<(u64, u64)> {
        slots.iter().map(|slots| (*slots, 0)).collect()
    }

    /// One worked example: pool, claims, level in lowest terms, exact shares, slots of three rounds.
    fn example(
        pool: u64,
        pairs: &[(u32, u64)],
        level_is: (u64, u64),
        exact: &[(u64, u64)],
        rounds: [&[u64]; 3],
    ) {
        let claims = claims(pairs);
        let Level { num, den } = level(pool, &claims);
        assert_eq!(num * level_is.1, den * level_is.0, "level {num}/{den}");
        assert_eq!(den == 0, level_is.1 == 0, "level {num}/{den}");
        assert_eq!(shares(pool, &claims), exact);
        let mut apportion = Apportion::default();
        for slots in rounds {
            assert_eq!(apportion.slots(pool, &claims).unwrap(), slots);
        }
    }

    #[test]
    fn e1_a_noisy_neighbour_leaves_the_small_one_its_slot() {
        example(100, &[(1, 1000), (1, 1)], (99, 1), &whole(&[99, 1]), [&[99, 1]; 3]);
    }

    #[test]
    fn e2_the_heaviest_weight_is_capped_and_rounding_alternates() {
        let rounds: [&[u64]; 3] = [&[18, 37, 5], &[19, 36, 5], &[18, 37, 5]];
        example(60, &[(1, 100), (2, 100), (3, 5)], (55, 3), &[(18, 1), (36, 2), (5, 0)], rounds);
    }

    #[test]
    fn e3_caps_cascade() {
        let slots = [10, 20, 30, 40];
        example(100, &[(5, 10), (3, 20), (1, 30), (1, 200)], (40, 1), &whole(&slots), [&slots; 3]);
    }

    #[test]
    fn e4_a_weight_of_10000_gets_no_more_than_it_wants() {
        example(10, &[(10000, 2), (1, 50), (1, 50)], (4, 1), &whole(&[2, 4, 4]), [&[2, 4, 4]; 3]);
    }

    #[test]
    fn e5_a_slot_that_cannot_be_split_goes_round() {
        let rounds: [&[u64]; 3] = [&[4, 3, 3], &[3, 4, 3], &[3, 3, 4]];
        example(10, &[(1, 50); 3], (10, 3), &[(3, 1); 3], rounds);
    }

    #[test]
    fn e6_without_contention_everybody_gets_all() {
        let claims = [(1, 10), (9, 20)];
        example(100, &claims, (0, 0), &whole(&[10, 20]), [&[10, 20]; 3]);
        assert!(!level(100, &self::claims(&claims)).contended());
        assert!(level(30, &self::claims(&claims)).contended(), "all slots are used");
    }

    #[test]
    fn e7_a_cap_that_is_the_share() {
        example(30, &[(1, 10), (1, 10), (1, 50)], (10, 1), &whole(&[10; 3]), [&[10; 3]; 3]);
    }

    #[test]
    fn e8_without_demand_or_weight_there_is_no_entitlement() {
        example(10, &[(1, 0), (0, 5), (2, 100)], (5, 1), &whole(&[0, 0, 10]), [&[0, 0, 10]; 3]);
        // And none of it makes a pool contended, or is given what is over.
        example(10, &[(1, 3), (0, 500)], (0, 0), &whole(&[3, 0]), [&[3, 0]; 3]);
        example(0, &[(1, 0), (0, 5)], (0, 0), &whole(&[0, 0]), [&[0, 0]; 3]);
    }

    #[test]
    fn the_primer_of_infeasible_weights_as_shares() {
        let mut pairs = vec![(1, 1); 7];
        pairs.push((10000, 1));
        let mut exact = vec![(0, 3); 7];
        exact.push((1, 0));
        let claims = claims(&pairs);
        assert_eq!(level(4, &claims), Level { num: 3, den: 7 });
        assert_eq!(shares(4, &claims), exact);
        // The same feasible weight as in the ledger, where the light ones have weight 1.
        assert_eq!(level(4, &claims).effective_weight(&claims[7]), Some(7.0 / 3.0));
        assert_eq!(level(4, &claims).effective_weight(&claims[0]), Some(1.0));
        assert_eq!(level(8, &claims[..7]).effective_weight(&claims[0]), None);
        // Three of seven slots a round: after seven rounds each light one has had three.
        let mut apportion = Apportion::default();
        let rounds: Vec<_> = (0..7).map(|_| apportion.slots(4, &claims).unwrap()).collect();
        let had: Vec<u64> = (0..8).map(|claim| rounds.iter().map(|slots| slots[claim]).sum()).collect();
        assert_eq!(had, [3, 3, 3, 3, 3, 3, 3, 7]);
    }

    type Vector = (u64, &'static [(u32, u64)], &'static [u64]);

    #[test]
    fn one_round_is_what_scx_layered_fills() {
        let vectors: [Vector; 10] = [
            (20, &[(1, 10), (1, 10)], &[10, 10]),
            (10, &[(1, 100), (1, 100)], &[5, 5]),
            (10, &[(1, 3), (1, 100)], &[3, 7]),
            (20, &[(1, 3), (1, 4)], &[3, 4]),
            (20, &[(3, 100), (1, 100)], &[15, 5]),
            (12, &[(1, 2), (1, 3), (1, 100)], &[2, 3, 7]),
            (10, &[(1, 0), (1, 10)], &[0, 10]),
            (10, &[(1, 5)], &[5]),
            (50, &[(2, 100), (3, 100), (5, 100)], &[10, 15, 25]),
            (10, &[], &[]),
        ];
        for (pool, pairs, slots) in vectors {
            assert_eq!(Apportion::default().slots(pool, &claims(pairs)).unwrap(), slots, "{pool} {pairs:?}");
        }
    }

    #[test]
    fn the_largest_numbers_are_exact() {
        let claims = claims(&[(u32::MAX, u64::MAX), (1, u64::MAX), (u32::MAX, u64::MAX - 1)]);
        let level = level(u64::MAX, &claims);
        assert_eq!(level, Level { num: u64::MAX, den: 2 * u64::from(u32::MAX) + 1 });
        let slots = Apportion::default().slots(u64::MAX, &claims).unwrap();
        assert_eq!(slots.iter().map(|slots| u128::from(*slots)).sum::<u128>(), u128::from(u64::MAX));
        assert_eq!(slots[1], u64::MAX / level.den);
    }

    #[test]
    fn credit_outlives_another_denominator_and_a_round_without_contention() {
        let three = claims(&[(1, 50), (1, 50), (1, 50)]);
        let mut apportion = Apportion::default();
        assert_eq!(apportion.slots(10, &three).unwrap(), [4, 3, 3]);
        assert_eq!(apportion.slots(1000, &three).unwrap(), [50, 50, 50]);
        // The first has had two thirds of a slot too many, the others a third too few.
        let heavier = claims(&[(2, 50), (2, 50), (2, 50)]);
        assert_eq!(apportion.slots(10, &heavier).unwrap(), [3, 4, 3]);
        assert_eq!(apportion.slots(10, &heavier[..2]).unwrap(), [5, 5]);
        // The third was absent, so nothing is owed to it any more.
        assert_eq!(apportion.slots(10, &heavier).unwrap(), [3, 3, 4]);
        let mut apportion = Apportion::default();
        assert_eq!(apportion.slots(10, &three).unwrap(), [4, 3, 3]);
        assert_eq!(apportion.slots(10, &three).unwrap(), [3, 4, 3]);
        // The first is away; the third is still owed more than the second.
        assert_eq!(apportion.slots(7, &three[1..]).unwrap(), [3, 4]);
    }

    #[test]
    fn ids_must_rise() {
        let mut pair = claims(&[(1, 1), (1, 1)]);
        pair[1].id = 0;
        let refused = Apportion::default().slots(1, &pair).unwrap_err();
        assert_eq!(refused.to_string(), "claims must come by rising id, each once: 0 comes after 0");
    }
}
