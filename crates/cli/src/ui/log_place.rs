//! The place in one stream of a task's output up to which it was shown. A later read goes on at the next byte, on any
//! server.

use std::sync::atomic::{AtomicI64, Ordering};

/// The place of an output's end, before a server has said where that is.
const UNKNOWN: i64 = i64::MIN;

/// The place of the next byte to show.
#[derive(Debug, Default)]
pub struct LogPlace(AtomicI64);

impl LogPlace {
    /// The place of the last bytes of an output whose length is not known yet.
    pub fn tail(bytes: u32) -> Self {
        LogPlace(AtomicI64::new(-i64::from(bytes)))
    }

    /// A place that is known: that many bytes were shown.
    pub fn at(bytes: u64) -> Self {
        LogPlace(AtomicI64::new(i64::try_from(bytes).unwrap_or(i64::MAX)))
    }

    /// The offset to ask for: none for the beginning. `None` if the next byte has no known place.
    pub fn offset(&self) -> Option<Option<i64>> {
        match self.0.load(Ordering::SeqCst) {
            UNKNOWN => None,
            0 => Some(None),
            place => Some(Some(place)),
        }
    }

    /// An answer begins; at which byte, a server says that was asked for the end.
    pub fn begin(&self, told: Option<u64>) {
        if self.0.load(Ordering::SeqCst) < 0 {
            let begins = told.and_then(|begins| i64::try_from(begins).ok());
            self.0.store(begins.unwrap_or(UNKNOWN), Ordering::SeqCst);
        }
    }

    /// That many bytes were shown.
    pub fn advance(&self, bytes: usize) {
        let place = self.0.load(Ordering::SeqCst);
        if place >= 0 {
            self.0.store(place.saturating_add_unsigned(bytes as u64), Ordering::SeqCst);
        }
    }

    /// The bytes of the output up to here; 0 where that is not known.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::SeqCst)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The answer of a server that has this output: its beginning if that was asked, and all bytes from there.
    fn answer(output: &[u8], offset: Option<i64>) -> (Option<u64>, Vec<u8>) {
        let offset = offset.unwrap_or(0);
        let begins = match usize::try_from(offset) {
            Ok(place) => place.min(output.len()),
            Err(_) => output.len().saturating_sub(offset.unsigned_abs() as usize),
        };
        ((offset < 0).then_some(begins as u64), output[begins..].to_vec())
    }

    proptest! {
        /// Answers are cut anywhere, while the output grows.
        #[test]
        fn nothing_is_shown_twice_and_nothing_is_lost(
            output in prop::collection::vec(any::<u8>(), 0..400),
            cuts in prop::collection::vec((0usize..400, 0usize..60), 0..12),
            tail in prop::option::of(0u32..500),
        ) {
            let place = tail.map_or_else(LogPlace::default, LogPlace::tail);
            let (mut shown, mut first_seen) = (Vec::new(), None);
            let all = (output.len(), usize::MAX);
            let mut written = 0;
            for (grown_to, cut) in cuts.into_iter().chain([all]) {
                written = grown_to.min(output.len()).max(written);
                let (begins, bytes) = answer(&output[..written], place.offset().unwrap());
                place.begin(begins);
                first_seen.get_or_insert(begins.unwrap_or(0));
                let part = &bytes[..cut.min(bytes.len())];
                shown.extend_from_slice(part);
                place.advance(part.len());
            }
            let begins = first_seen.unwrap() as usize;
            prop_assert_eq!(&shown[..], &output[begins..]);
            prop_assert_eq!(place.bytes() as usize, output.len());
        }
    }

    #[test]
    fn the_end_of_an_output_has_no_place_unless_a_server_says_it() {
        let place = LogPlace::tail(100);
        assert_eq!(place.offset(), Some(Some(-100)));
        place.begin(None);
        place.advance(7);
        assert_eq!((place.offset(), place.bytes()), (None, 0));
    }
}
