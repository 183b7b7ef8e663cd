//! A sample of the decisions of the last day. The engine remembers the last thousand, and only while it runs; these are in
//! the store with the charts.
//!
//! Each five minutes have one row: decisions as JSON, compressed, because the names of rules repeat. A row that is damaged,
//! or has the form of a later release, is as if it were not there.

use super::charts::{DAY_STEP_MS, DAY_STEPS};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::sync::Arc;
use windlass_api::board::BoardDecision;
use windlass_store::SeriesRow;

/// The part of the store's series that has them. Those of charts have lower numbers.
pub const PART: u8 = 16;
/// The first byte of a row.
const FORM: u8 = 1;
/// Bytes of a row. A day of them takes 14 MiB at most, in the store and in memory.
const ROW_BYTES_MAX: usize = 48 << 10;
/// Bytes of a row's JSON. A row of more is not read.
const JSON_BYTES_MAX: u64 = 8 << 20;
/// Decisions of one look, of which there are 30 in five minutes.
pub const LOOK_MAX: usize = 4;
/// Candidates that are kept of a decision: the winner, and the next best.
const CANDIDATES_MAX: usize = 2;
/// Stands for an infinite number. Readers of JSON may take the very largest numbers for infinite.
const NUMBER_MAX: f64 = 1e300;

/// The sample. A clone shares the rows.
#[derive(Clone, Debug, Default)]
pub struct KeptDecisions {
    /// As the store has them, by the step of the day in which they were looked at.
    rows: BTreeMap<u64, Arc<[u8]>>,
    /// Of the step under way, oldest first; what was written of it before is among the rows.
    open: Option<(u64, Vec<BoardDecision>)>,
}

impl KeptDecisions {
    /// The sample that the store has, for a server that starts at `now_ms`.
    pub fn restore(rows: &[SeriesRow], now_ms: u64) -> KeptDecisions {
        let today = now_ms / DAY_STEP_MS;
        let kept = rows.iter().filter(|row| row.part == PART && row.data.len() <= ROW_BYTES_MAX);
        let rows = kept.map(|row| (row.step, Arc::from(row.data.as_slice())));
        let mut found = KeptDecisions { rows: rows.collect(), open: None };
        found.forget(today);
        found
    }

    /// Takes in the decisions of a look at `now_ms`, oldest first.
    pub fn add(&mut self, now_ms: u64, decisions: Vec<BoardDecision>) {
        let step = now_ms / DAY_STEP_MS;
        if self.open.as_ref().is_some_and(|(open, _)| *open != step) {
            self.close();
        }
        let (_, open) = self.open.get_or_insert_with(|| (step, Vec::new()));
        open.extend(decisions.into_iter().take(LOOK_MAX).map(thinned));
    }

    /// The row of a step that is over, if it has any decision, and the steps that are kept.
    pub fn row(&mut self, step: u64) -> (Option<SeriesRow>, Range<u64>) {
        if self.open.as_ref().is_some_and(|(open, _)| *open == step) {
            self.close();
        }
        let row = self.rows.get(&step).map(|data| SeriesRow { part: PART, step, data: data.to_vec() });
        (row, step.saturating_sub(DAY_STEPS as u64)..step + 1)
    }

    /// Up to `limit` of the decisions before `at_ms`, newest first. Reading all of a day takes a tenth of a second.
    pub fn before(&self, at_ms: u64, limit: usize) -> Vec<BoardDecision> {
        let open = self.open.iter().flat_map(|(_, open)| open.iter().rev().cloned());
        let rows = self.rows.values().rev().flat_map(|row| unpacked(row).into_iter().rev());
        open.chain(rows).filter(|decision| decision.at < at_ms).take(limit).collect()
    }

    /// Packs the decisions of the step under way, behind those of its row.
    fn close(&mut self) {
        let Some((step, open)) = self.open.take() else { return };
        let mut all = self.rows.get(&step).map(|row| unpacked(row)).unwrap_or_default();
        all.extend(open);
        if !all.is_empty() {
            self.rows.insert(step, Arc::from(packed(&all)));
        }
        self.forget(step);
    }

    /// Forgets what is older than a day, or of a time that has not come.
    fn forget(&mut self, today: u64) {
        self.rows.retain(|step, _| *step <= today && step + DAY_STEPS as u64 >= today);
    }
}

/// What is kept of a decision. JSON has no infinite numbers, which a load may be.
fn thinned(mut decision: BoardDecision) -> BoardDecision {
    decision.candidates.truncate(CANDIDATES_MAX);
    for candidate in &mut decision.candidates {
        candidate.score = finite(candidate.score);
        candidate.load = finite(candidate.load);
        for rule in &mut candidate.rules {
            rule.points = finite(rule.points);
            if rule.points == 0.0 {
                rule.reason.clear();
            }
        }
    }
    decision
}

fn finite(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(-NUMBER_MAX, NUMBER_MAX) }
}

/// As many of the decisions as fit into a row, evenly spread.
fn packed(decisions: &[BoardDecision]) -> Vec<u8> {
    let mut every = 1;
    loop {
        let some: Vec<&BoardDecision> = decisions.iter().step_by(every).collect();
        let json = serde_json::to_vec(&some).expect("strings and numbers always serialize");
        let mut row = DeflateEncoder::new(vec![FORM], Compression::default());
        let row = row.write_all(&json).and_then(|()| row.finish()).expect("memory takes what is written");
        if row.len() <= ROW_BYTES_MAX || some.len() <= 1 {
            return row;
        }
        every *= 2;
    }
}

fn unpacked(row: &[u8]) -> Vec<BoardDecision> {
    let Some((&FORM, data)) = row.split_first() else { return Vec::new() };
    let mut json = Vec::new();
    let read = DeflateDecoder::new(data).take(JSON_BYTES_MAX).read_to_end(&mut json);
    read.ok().and_then(|_| serde_json::from_slice(&json).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_api::RulePoints;
    use windlass_api::board::BoardCandidate;

    const DAY_MS: u64 = DAY_STEPS as u64 * DAY_STEP_MS;
    const NOW_MS: u64 = 1_000 * DAY_MS;

    fn decision(at: u64, reason: &str) -> BoardDecision {
        let rule = RulePoints { rule: "WaitTimeRule".to_owned(), points: 3.5, reason: reason.to_owned() };
        let candidate = |id: u64| BoardCandidate {
            id,
            name: format!("box{id}"),
            score: 12.5,
            load: f64::INFINITY,
            won: id == 1,
            rules: vec![rule.clone()],
        };
        BoardDecision {
            at,
            task: format!("7.{at}"),
            kind: None,
            queue: Some("films".to_owned()),
            name: None,
            job_name: None,
            user: None,
            job_id: 7,
            policy: "resource-aware".to_owned(),
            worker_id: Some(1),
            winner: Some("box1".to_owned()),
            candidates: (1..=6).map(candidate).collect(),
        }
    }

    fn times(kept: &KeptDecisions, before: u64, limit: usize) -> Vec<u64> {
        kept.before(before, limit).iter().map(|decision| decision.at).collect()
    }

    #[test]
    fn the_decisions_of_a_day_outlive_the_server() {
        let (mut kept, mut rows) = (KeptDecisions::default(), Vec::new());
        for step in 0..3 {
            let now = NOW_MS + step * DAY_STEP_MS;
            kept.add(now, vec![decision(now + 1, "long"), decision(now + 2, "long")]);
            kept.add(now + 10_000, vec![decision(now + 3, "long")]);
            if step > 0 {
                rows.extend(kept.row(now / DAY_STEP_MS - 1).0);
            }
        }
        let last = NOW_MS + 2 * DAY_STEP_MS;
        // The server ends in the middle of a step, and another one goes on with it.
        rows.extend(kept.row(last / DAY_STEP_MS).0);
        let mut after = KeptDecisions::restore(&rows, last + 20_000);
        assert_eq!(times(&after, u64::MAX, 4), [last + 3, last + 2, last + 1, NOW_MS + DAY_STEP_MS + 3]);
        assert_eq!(times(&after, last + 1, 2), [NOW_MS + DAY_STEP_MS + 3, NOW_MS + DAY_STEP_MS + 2]);
        after.add(last + 30_000, vec![decision(last + 4, "long")]);
        let (row, steps) = after.row(last / DAY_STEP_MS);
        assert_eq!((row.unwrap().step, steps.end), (last / DAY_STEP_MS, last / DAY_STEP_MS + 1));
        assert_eq!(times(&after, u64::MAX, 2), [last + 4, last + 3]);
        let first = &after.before(u64::MAX, 1)[0].candidates;
        assert_eq!((first.len(), first[0].load, first[0].rules[0].points), (2, NUMBER_MAX, 3.5));
        // A day later they are forgotten.
        after.add(last + DAY_MS + 2 * DAY_STEP_MS, vec![decision(1, "")]);
        after.row((last + DAY_MS) / DAY_STEP_MS + 2);
        assert_eq!(times(&after, u64::MAX, 10), [1]);
        assert!(
            KeptDecisions::restore(&rows, NOW_MS - DAY_MS).rows.is_empty(),
            "of a time that has not come"
        );
    }

    #[test]
    fn a_row_is_of_bounded_size_and_has_decisions_of_all_of_its_time() {
        let mut kept = KeptDecisions::default();
        let noise = |n: u64| {
            (0..60).map(|k| format!("{:x}", (n * 31 + k).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
        };
        for look in 0..30 {
            let some = (0..9).map(|n| {
                let reason: String = noise(look * 9 + n);
                decision(NOW_MS + look * 10_000 + n, &reason)
            });
            kept.add(NOW_MS + look * 10_000, some.collect());
        }
        let row = kept.row(NOW_MS / DAY_STEP_MS).0.unwrap();
        assert!(row.data.len() <= ROW_BYTES_MAX, "{}", row.data.len());
        let found = times(&kept, u64::MAX, 1_000);
        assert!(found.len() > 10 && found.len() <= 30 * LOOK_MAX, "{}", found.len());
        let (newest, oldest) = (found[0] - NOW_MS, found[found.len() - 1] - NOW_MS);
        assert!(oldest < 60_000 && newest > 240_000, "{oldest} {newest}");
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_store_are_a_danger(mut data in prop::collection::vec(any::<u8>(), 0..2_000), step in 0u64..900) {
            if let Some(first) = data.first_mut() {
                *first = FORM;
            }
            let rows = [SeriesRow { part: PART, step, data }];
            let mut kept = KeptDecisions::restore(&rows, 600 * DAY_STEP_MS);
            kept.add(600 * DAY_STEP_MS, vec![decision(5, "")]);
            kept.row(600);
            prop_assert!(kept.before(u64::MAX, 10).len() <= 10);
        }
    }
}
