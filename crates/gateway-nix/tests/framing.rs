//! The bytes of Nix 2.8.0, recorded from a real run, and random bytes.

use proptest::prelude::*;
use std::io::Read;
use windlass_gateway_nix::hook::builders;
use windlass_gateway_nix::hook::framing::{BadInput, Reader, Setting, Try, texts};

/// All that a hook was sent: settings, one question, inputs and outputs.
const WHOLE: &[u8] = include_bytes!("golden/stdin_c.bin");
/// A question that was asked again, and inputs and outputs: Nix had been told to ask later.
const TWICE: &[u8] = include_bytes!("golden/try_twice.bin");

/// Gives this many bytes at a time.
struct Chunks<'a>(&'a [u8], usize);

impl Read for Chunks<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = self.0.len().min(into.len()).min(self.1);
        into[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

#[test]
fn a_recorded_conversation_is_read_and_written_byte_for_byte() {
    for chunk in [1, 7, 8, usize::MAX] {
        let mut reader = Reader::new(Chunks(WHOLE, chunk));
        let settings = reader.settings().unwrap();
        assert_eq!(settings.get(Setting::System), Some("x86_64-linux"));
        let machines = builders::read(settings.get(Setting::Builders).unwrap(), "x86_64-linux");
        assert_eq!(machines.len(), 1);
        assert_eq!((machines[0].machine.uri.as_str(), machines[0].machine.max_jobs), ("ssh://b1", 1));
        assert_eq!(machines[0].machine.supported, ["kvm", "big-parallel"]);
        let question = reader.question().unwrap();
        assert_eq!(
            (question.system.as_str(), &question.features[..]),
            ("x86_64-linux", &["kvm".to_owned()][..])
        );
        assert!(question.drv.starts_with("/nix/store/") && question.drv.ends_with("-c.drv"));
        let (inputs, outputs) = (reader.texts().unwrap(), reader.texts().unwrap());
        assert_eq!((inputs.len(), &outputs[..]), (2, &["out".to_owned()][..]));
        assert!(matches!(reader.question(), Err(BadInput::Ended)));
        let mut written = Vec::new();
        settings.write(None, &mut written).unwrap();
        question.write(&mut written).unwrap();
        texts(&inputs, &mut written).unwrap();
        texts(&outputs, &mut written).unwrap();
        assert!(written == WHOLE, "what Nix's own hook gets is what this one got");
    }
}

#[test]
fn a_question_may_be_asked_again() {
    let mut reader = Reader::new(Chunks(TWICE, 1));
    let (first, second) = (reader.question().unwrap(), reader.question().unwrap());
    assert_eq!(first, second);
    assert_eq!(first.features, ["big-parallel"]);
    assert_eq!((reader.texts().unwrap().len(), reader.texts().unwrap().len()), (0, 1));
    assert!(matches!(reader.question(), Err(BadInput::Ended)));
}

#[test]
fn only_the_machines_are_changed() {
    let settings = Reader::new(WHOLE).settings().unwrap();
    let mut written = Vec::new();
    settings.write(Some("ssh://b9 x86_64-linux - 64 1"), &mut written).unwrap();
    let changed = Reader::new(&written[..]).settings().unwrap();
    assert_eq!(changed.get(Setting::Builders), Some("ssh://b9 x86_64-linux - 64 1"));
    assert_eq!(changed.get(Setting::Cores), settings.get(Setting::Cores));
    let shorter = "ssh://b1 x86_64-linux - 1 1 kvm,big-parallel".len() - "ssh://b9 x86_64-linux - 64 1".len();
    assert!(WHOLE.len() - written.len() > shorter, "the same number of settings, and no question");
    assert_eq!(format!("{settings:?}"), "91 settings", "they are not shown");
}

/// Everything that Nix could send, as far as it can be read.
fn read_all(bytes: &[u8], chunk: usize) {
    let mut reader = Reader::new(Chunks(bytes, chunk));
    let Ok(settings) = reader.settings() else { return };
    _ = settings.get(Setting::Builders).map(|text| builders::read(text, "x86_64-linux"));
    while reader.question().is_ok() {}
    _ = reader.texts();
}

#[test]
fn a_million_streams_are_no_danger() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut bytes = Vec::new();
    for _ in 0..1_000_000 {
        // Numbers as the protocol has them, small ones often, so that the reader comes far.
        bytes.clear();
        for _ in 0..next() % 12 {
            let number = next();
            let number = if number % 4 == 0 { number } else { number >> 8 & 0x1f };
            bytes.extend(number.to_le_bytes());
        }
        read_all(&bytes, 1 + (next() % 9) as usize);
    }
}

proptest! {
    #[test]
    fn a_recording_that_is_damaged_is_no_danger(at in 0..WHOLE.len(), byte: u8, cut in 0..WHOLE.len()) {
        let mut bytes = WHOLE.to_vec();
        bytes[at] = byte;
        read_all(&bytes, 64);
        read_all(&WHOLE[..cut], 1);
    }

    #[test]
    fn what_is_written_is_read(
        system in ".{0,20}", drv in ".{0,40}", features in prop::collection::vec(".{0,12}", 0..5), is_willing: bool,
    ) {
        let question = Try { is_willing, system, drv, features };
        let mut written = Vec::new();
        question.write(&mut written).unwrap();
        prop_assert_eq!(Reader::new(&written[..]).question().unwrap(), question);
    }
}
