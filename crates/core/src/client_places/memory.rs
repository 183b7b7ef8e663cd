//! The memory of places: what a request is sized with that names none, and what a place is booked with while its work
//! runs.
//!
//! Properties:
//! - What is known of the nearest shape sizes a request: the largest of its last peaks and a tenth.
//! - Work of which nothing is known starts where [`UNKNOWN_ROOM_BYTES`] are free, and is booked with half of what is free,
//!   or less where memory is plentiful. So the first ones of a kind that is large take a part of the memory each, and the
//!   others wait until one of them has shown what they need.
//! - On a worker with [`UNKNOWN_BYTES`] for each core no work waits for memory because nothing is known of it, as long as
//!   what runs there is of one core each and nothing is known of that either.
//! - A booking rises with what the work holds, and never beyond what the worker has. It falls only where it was a guess,
//!   and what the work holds has not risen for a while.

use crate::profiles::Profiles;
use crate::score::history::Signature;
use crate::time::{NS_PER_S, Time};

/// Bytes that must be free where work starts of which nothing is known; a third of a smaller worker. Most compilers need
/// less, and a linker of a large program about as much.
const UNKNOWN_ROOM_BYTES: u64 = 1 << 30;
/// What such work is booked with where half of what is free is more, and a core's part of what is free is less.
const UNKNOWN_BYTES: u64 = 2 << 30;
/// How long what the work holds must not have risen before the booking follows it, where nothing was known of the work:
/// longer than a linker reads before it begins to write.
const UNKNOWN_SETTLES_NS: u64 = 5 * NS_PER_S;
/// The same of work that was sized by a more general shape. Other work of its kind has held as much as it is booked with.
const NEAREST_SETTLES_NS: u64 = 60 * NS_PER_S;

/// What the booked memory of a place follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryBasis {
    /// Its request says it.
    #[default]
    Asked,
    /// What earlier work of its exact shape held.
    Exact,
    /// What earlier work of a more general shape held.
    Nearest,
    /// Nothing is known of it.
    Unknown,
}

/// What is known of the memory of a place, beside what is booked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaceMemory {
    /// What its booking follows from.
    pub basis: MemoryBasis,
    /// Bytes that its work holds, as its client said last; `None` before it says so.
    pub held_bytes: Option<u64>,
    /// The most of these.
    peak_bytes: u64,
    /// The peak when it rose last by a part that counts, and when that was.
    steady: (u64, Time),
    /// Its client says what the work holds.
    is_told: bool,
}

impl PlaceMemory {
    /// The memory of work that starts now. `is_told`: its client will say what the work holds.
    pub(super) fn begin(basis: MemoryBasis, is_told: bool, now: Time) -> PlaceMemory {
        PlaceMemory { basis, steady: (0, now), is_told, ..PlaceMemory::default() }
    }

    /// The work holds these `bytes` now. Returns what its place is to be booked with, where `booked_bytes` are, and the
    /// worker has `free_bytes` beside.
    pub(super) fn holds(&mut self, bytes: u64, booked_bytes: u64, free_bytes: u64, now: Time) -> u64 {
        self.held_bytes = Some(bytes);
        self.is_told = true;
        self.peak_bytes = self.peak_bytes.max(bytes);
        if self.peak_bytes > self.steady.0.saturating_add(self.steady.0 / 8) {
            self.steady = (self.peak_bytes, now);
        }
        let settles_ns = match self.basis {
            MemoryBasis::Asked | MemoryBasis::Exact => None,
            MemoryBasis::Nearest => Some(NEAREST_SETTLES_NS),
            MemoryBasis::Unknown => Some(UNKNOWN_SETTLES_NS),
        };
        let is_settled = settles_ns.is_some_and(|ns| now.since(self.steady.1) >= ns);
        let wanted = match is_settled && self.peak_bytes > 0 {
            true => self.peak_bytes.saturating_add(self.peak_bytes / 4),
            false => booked_bytes.max(bytes),
        };
        wanted.min(booked_bytes.saturating_add(free_bytes))
    }

    /// Bytes of the booking that the work does not use yet; `None` where its client does not say what it holds.
    pub(super) fn unused_bytes(&self, booked_bytes: u64) -> Option<u64> {
        self.is_told.then(|| booked_bytes.saturating_sub(self.held_bytes.unwrap_or(0)))
    }
}

/// What work of these shapes, from exact to general, needs on a worker with at most `most_bytes` of memory: to start, and what
/// that follows from.
pub(super) fn size_of(shapes: &[Signature], profiles: &Profiles, most_bytes: u64) -> (u64, MemoryBasis) {
    for (place, shape) in shapes.iter().enumerate() {
        if let Some(bytes) = profiles.reserve_outside(shape) {
            let basis = if place == 0 { MemoryBasis::Exact } else { MemoryBasis::Nearest };
            return (bytes.min(most_bytes), basis);
        }
    }
    (UNKNOWN_ROOM_BYTES.min(most_bytes / 3), MemoryBasis::Unknown)
}

/// What work of which nothing is known is booked with on a worker with this room, where it takes `cpu` of the free
/// cpus: their part of the room, but no less than [`UNKNOWN_BYTES`] and no more than half of the room.
pub(super) fn share_of_room(room_bytes: u64, cpu: u32, free_cpu: u32) -> u64 {
    // Work that asks for no cpu runs in the place of something that holds one.
    let cpu = u64::from(cpu.max(100));
    let by_cpu = (room_bytes / u64::from(free_cpu).max(cpu)).saturating_mul(cpu);
    by_cpu.max(UNKNOWN_BYTES).min(room_bytes / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> Time {
        Time(seconds * NS_PER_S)
    }

    /// How many of which nothing is known start at once on a worker, each of one core, and what the last ones leave.
    fn started(cores: u32, memory: u64) -> (u32, u64) {
        let (mut room, mut free_cpu, mut count) = (memory, cores * 100, 0);
        while free_cpu >= 100 && room >= UNKNOWN_ROOM_BYTES.min(memory / 3) {
            room -= share_of_room(room, 100, free_cpu);
            free_cpu -= 100;
            count += 1;
        }
        (count, room)
    }

    #[test]
    fn the_first_of_a_kind_share_what_is_free() {
        // Cores, GiB, and how many start.
        for (cores, memory, expected) in
            [(8, 3, 2), (8, 4, 3), (8, 8, 5), (2, 3, 2), (16, 16, 9), (16, 64, 16), (2, 1, 2), (1, 1, 1)]
        {
            assert_eq!(started(cores, memory * GIB).0, expected, "{cores} cores, {memory} GiB");
        }
    }

    #[test]
    fn a_guess_follows_what_the_work_holds_and_what_is_known_only_rises() {
        let mut unknown = PlaceMemory::begin(MemoryBasis::Unknown, true, at(0));
        assert_eq!(unknown.unused_bytes(GIB), Some(GIB), "it holds nothing yet");
        // It grows, then it holds 400 MiB.
        assert_eq!(unknown.holds(200 * MIB, GIB, GIB, at(1)), GIB);
        assert_eq!(unknown.holds(400 * MIB, GIB, GIB, at(2)), GIB);
        assert_eq!(unknown.holds(410 * MIB, GIB, GIB, at(6)), GIB);
        assert_eq!(unknown.holds(400 * MIB, GIB, GIB, at(7)), 410 * MIB + 410 * MIB / 4);
        assert_eq!(unknown.unused_bytes(500 * MIB), Some(100 * MIB));
        // It grows on: as far as there is something.
        assert_eq!(unknown.holds(700 * MIB, 512 * MIB, GIB, at(8)), 700 * MIB);
        assert_eq!(unknown.holds(900 * MIB, 700 * MIB, 100 * MIB, at(9)), 800 * MIB);
        let mut nearest = PlaceMemory::begin(MemoryBasis::Nearest, true, at(0));
        assert_eq!(nearest.holds(100 * MIB, GIB, GIB, at(1)), GIB);
        assert_eq!(nearest.holds(100 * MIB, GIB, GIB, at(60)), GIB);
        assert_eq!(nearest.holds(100 * MIB, GIB, GIB, at(61)), 125 * MIB);
        for basis in [MemoryBasis::Asked, MemoryBasis::Exact] {
            let mut known = PlaceMemory::begin(basis, false, at(0));
            assert_eq!(known.unused_bytes(GIB), None, "nobody says what it holds");
            assert_eq!(known.holds(MIB, GIB, GIB, at(900)), GIB);
            assert_eq!(known.holds(3 * GIB, GIB, GIB, at(901)), 2 * GIB);
        }
    }

    proptest! {
        #[test]
        fn a_share_is_a_part_of_the_room(room in 0..1u64 << 50, cpu in 0..1_000_000u32, free in 0..1_000_000u32) {
            prop_assert!(share_of_room(room, cpu, free) <= room / 2);
        }

        /// On a machine with much memory for each core, unknown work starts as if nothing had to be known.
        #[test]
        fn where_memory_is_plentiful_nothing_waits(cores in 1..300u32, extra in 0..1u64 << 40) {
            let (count, _) = started(cores, u64::from(cores) * UNKNOWN_BYTES + extra);
            prop_assert_eq!(count, cores);
        }

        /// Whatever is told, a booking never takes more than there is, and what is known never falls.
        #[test]
        fn a_booking_takes_no_more_than_there_is(
            told in prop::collection::vec((0..8 * GIB, 0..90u64), 1..30),
            basis in prop::sample::select(vec![MemoryBasis::Exact, MemoryBasis::Nearest, MemoryBasis::Unknown]),
        ) {
            let (has, mut booked, mut now) = (4 * GIB, GIB, at(0));
            let mut memory = PlaceMemory::begin(basis, true, now);
            for (bytes, seconds) in told {
                now = now.after(seconds * NS_PER_S);
                let next = memory.holds(bytes, booked, has - booked, now);
                prop_assert!(next <= has);
                prop_assert!(next >= booked || basis != MemoryBasis::Exact);
                prop_assert!(next >= bytes.min(has), "what it holds is booked as far as it is there");
                booked = next;
            }
        }
    }
}
