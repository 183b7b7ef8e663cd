//! Laws of entitlement, in 200,000 random cases of three rounds each.

use windlass_load_ledger::share::{Apportion, Claim, Level, level};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    /// Small and large numbers, and zero.
    fn magnitude(&mut self, max: u64) -> u64 {
        let bound = [1, 4, 30, 1000, max][self.below(5) as usize].min(max);
        self.below(bound + 1)
    }

    fn claims(&mut self) -> Vec<Claim> {
        let count = self.below(7);
        let mut claim = |id| {
            let demand_max = if self.below(20) == 0 { u64::MAX - 1 } else { 100_000 };
            Claim { id, weight: self.magnitude(10_000) as u32, demand: self.magnitude(demand_max) }
        };
        (0..count).map(&mut claim).collect()
    }
}

/// Checks that level, exact shares and slots are what they must be, without another way to find the level:
/// there is one level only at which the shares make up the pool.
fn judge(pool: u64, claims: &[Claim], slots: &[u64]) {
    let Level { num, den } = level(pool, claims);
    let counting = claims.iter().filter(|claim| claim.weight > 0);
    let wanted: u128 = counting.map(|claim| u128::from(claim.demand)).sum();
    let given: u128 = slots.iter().map(|slots| u128::from(*slots)).sum();
    assert_eq!(given, wanted.min(u128::from(pool)));
    assert!(den > 0 || wanted <= u128::from(pool), "not contended, but a claim lacks slots");
    let mut exact = (0, 0);
    for (claim, slots) in claims.iter().zip(slots) {
        let entitled = u128::from(claim.weight) * u128::from(num);
        let capped = den == 0 || u128::from(claim.demand) * u128::from(den) <= entitled;
        let (whole, part) = match claim.weight {
            0 => (0, 0),
            _ if capped => (u128::from(claim.demand), 0),
            _ => (entitled / u128::from(den), entitled % u128::from(den)),
        };
        exact = (exact.0 + whole, exact.1 + part);
        let share = Level { num, den }.share(claim);
        assert_eq!((u128::from(share.whole), u128::from(share.part)), (whole, part));
        assert!(*slots <= claim.demand);
        let up = u128::from(part > 0);
        assert!((whole..=whole + up).contains(&u128::from(*slots)), "{slots} is not {whole} or {up} more");
    }
    let of = u128::from(den.max(1));
    assert_eq!(exact.0 * of + exact.1, wanted.min(u128::from(pool)) * of, "the level leaves something over");
}

#[test]
fn random_claims_get_their_exact_share_rounded() {
    let mut random = Random(7);
    for case in 0..200_000 {
        let mut claims = random.claims();
        let pool = random.magnitude(1_000_000);
        let mut apportion = Apportion::default();
        for round in 0..3 {
            let slots = apportion.slots(pool, &claims).unwrap();
            judge(pool, &claims, &slots);
            // Half of the cases change between rounds.
            if case % 2 == 0 && round == 0 && !claims.is_empty() {
                let place = random.below(claims.len() as u64) as usize;
                claims[place].demand = random.magnitude(100_000);
                claims.remove(random.below(claims.len() as u64) as usize);
            }
        }
    }
}

#[test]
fn effective_weights_divide_the_pool_without_caps() {
    let mut random = Random(13);
    for _ in 0..20_000 {
        let (claims, pool) = (random.claims(), random.magnitude(1_000_000));
        let level = level(pool, &claims);
        let weights: Option<Vec<f64>> = claims.iter().map(|claim| level.effective_weight(claim)).collect();
        let Some(weights) = weights.filter(|weights| !weights.is_empty()) else {
            assert!(claims.is_empty() || !level.contended());
            continue;
        };
        let together: f64 = weights.iter().sum();
        for (claim, weight) in claims.iter().zip(weights) {
            assert!((0.0..=f64::from(claim.weight)).contains(&weight));
            let share = level.share(claim);
            let exact = share.whole as f64 + share.part as f64 / share.of as f64;
            let proportional = pool as f64 * weight / together;
            assert!((proportional - exact).abs() <= 1e-9 * exact.max(1.0), "{proportional} is not {exact}");
        }
    }
}

#[test]
fn what_a_claim_has_had_stays_near_its_exact_share() {
    let mut random = Random(11);
    for _ in 0..500 {
        let (claims, pool) = (random.claims(), random.magnitude(1000));
        let level = level(pool, &claims);
        let mut apportion = Apportion::default();
        let mut had = vec![0i128; claims.len()];
        for round in 1..=100 {
            for (had, slots) in had.iter_mut().zip(apportion.slots(pool, &claims).unwrap()) {
                *had += i128::from(slots);
            }
            for (had, claim) in had.iter().zip(&claims) {
                let share = level.share(claim);
                let of = i128::from(share.of);
                let due = round * (i128::from(share.whole) * of + i128::from(share.part));
                assert!((had * of - due).abs() < 2 * of, "{had} slots for {due}/{of}");
            }
        }
    }
}
