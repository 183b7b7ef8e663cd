//! Job specs: a recorded one of pyoutline 1.37, limits, names, ranges, and hostile documents.

use proptest::prelude::*;
use windlass_cuebot::frames::{self, RangeError};
use windlass_cuebot::generated::depend::DependType;
use windlass_cuebot::generated::job::LayerType;
use windlass_cuebot::names;
use windlass_cuebot::spec::{self, SpecError, parse};

/// What pyoutline 1.37 sent as the field `spec` of `LaunchSpecAndWait`.
const RECORDED: &str = include_str!("golden/pyoutline_1.37_spec.xml");

/// A document with one layer, with more elements in its job and layer.
fn document(user: &str, job: &str, layer: &str) -> String {
    format!(
        "<spec><show>testing</show><shot>shot01</shot><user>{user}</user><job name=\"some_job\">{job}<layers>\
         <layer name=\"one\" type=\"Render\"><cmd>true</cmd><range>1-3</range><chunk>1</chunk>{layer}</layer>\
         </layers></job></spec>"
    )
}

#[test]
fn a_recorded_spec_of_pyoutline_is_understood() {
    let spec = parse(RECORDED).unwrap();
    assert_eq!((spec.show.as_str(), spec.shot.as_str(), spec.user.as_str()), ("testing", "shot01", "artist"));
    assert_eq!((spec.facility.as_deref(), spec.uid), (Some("local"), Some(1000)));
    let [job] = spec.jobs.as_slice() else { panic!("{:?}", spec.jobs) };
    assert_eq!(job.name, "testing-shot01-artist_two_layers");
    assert_eq!((job.paused, job.auto_eat, job.priority, job.retries_max), (true, false, Some(1), Some(2)));
    let names: Vec<&str> = job.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["sim", "first", "second", "third"]);
    let first = &job.layers[1];
    assert_eq!((first.kind, first.command.as_str()), (LayerType::Render, "/bin/echo a&b #IFRAME#"));
    assert_eq!((first.cores_min, first.memory_kib), (Some(100), Some(512 * 1024)));
    assert_eq!(first.env, [("A".to_owned(), "1".to_owned())]);
    assert_eq!(first.tags, Some(vec!["general".to_owned(), "big_mem".to_owned()]));
    assert_eq!(
        (first.limits.as_slice(), first.services.as_slice()),
        (&["nuke".to_owned()][..], &["shell".to_owned()][..])
    );
    assert_eq!((job.layers[2].chunk_size, job.layers[2].frames.as_slice()), (2, &[1, 3][..]));
    let kinds: Vec<DependType> = spec.depends.iter().map(|depend| depend.kind).collect();
    assert_eq!(kinds, [DependType::FrameByFrame, DependType::LayerOnLayer]);
    assert_eq!(spec.depends[1].from.layer.as_deref(), Some("third"));
    assert_eq!(spec.depends[1].on.job, job.name);
}

#[test]
fn what_a_document_does_not_say_is_unknown() {
    let spec = parse(&document("artist", "", "")).unwrap();
    let layer = &spec.jobs[0].layers[0];
    assert_eq!((spec.facility, spec.uid, spec.email), (None, None, None));
    assert_eq!((layer.cores_min, layer.memory_kib, layer.threadable), (None, None, None));
    assert_eq!((layer.gpus_min, layer.gpu_memory_kib, &layer.tags), (None, None, &None));
    assert_eq!((spec.jobs[0].priority, spec.jobs[0].retries_max, spec.jobs[0].cores_max), (None, None, None));
}

#[test]
fn cores_and_memory_have_the_units_of_opencue() {
    let layer = |text: &str| parse(&document("artist", "", text)).map(|spec| spec.jobs[0].layers[0].clone());
    for (text, hundredths) in
        [("1.5", 150), ("150", 150), ("0", 0), ("-1.0", -100), ("5", 100), ("9999", 2400)]
    {
        assert_eq!(layer(&format!("<cores>{text}</cores>")).unwrap().cores_min, Some(hundredths), "{text}");
    }
    for (text, kib) in [("512m", 524_288), ("2g", 2_097_152), ("2", 2_097_152), ("1m", 262_144)] {
        assert_eq!(layer(&format!("<memory>{text}</memory>")).unwrap().memory_kib, Some(kib), "{text}");
    }
    let part = layer("<cores>0.5</cores><threadable>True</threadable>").unwrap();
    assert_eq!((part.cores_min, part.threadable), (Some(50), Some(false)));
    for bad in
        ["<cores>many</cores>", "<cores>nan.0</cores>", "<memory>-1g</memory>", "<memory>infm</memory>"]
    {
        assert!(matches!(layer(bad), Err(SpecError::Value { .. })), "{bad}");
    }
}

#[test]
fn a_cap_of_cores_is_in_hundredths_and_minus_one_is_none() {
    let cores = |text: &str| parse(&document("artist", &format!("<maxcores>{text}</maxcores>"), ""));
    assert_eq!(cores("20").unwrap().jobs[0].cores_max, Some(2_000));
    assert_eq!(cores("-1").unwrap().jobs[0].cores_max, Some(-1));
    assert!(matches!(cores("2000000000"), Err(SpecError::Value { .. })));
}

#[test]
fn nothing_runs_as_root() {
    assert!(matches!(parse(&document("root", "", "")), Err(SpecError::Root)));
    let zero = document("artist", "", "").replace("</user>", "</user><uid>0</uid>");
    assert!(matches!(parse(&zero), Err(SpecError::Root)));
}

#[test]
fn no_name_leads_out_of_a_directory() {
    for bad in ["..", "../x", "a/b", "a\\b", "a b", "ä", "..."] {
        assert!(matches!(parse(&document(bad, "", "")), Err(SpecError::Name(_))), "{bad}");
        for part in ["<show>testing", "<shot>shot01"] {
            let (tag, _) = part.split_at(6);
            let text = document("artist", "", "").replace(part, &format!("{tag}{bad}"));
            assert!(matches!(parse(&text), Err(SpecError::Name(_))), "{tag}{bad}");
        }
    }
}

#[test]
fn names_of_jobs_are_those_of_opencue() {
    let name = |name| names::job("show", "shot", "me", name).unwrap();
    assert_eq!(name("Beauty-Pass"), "show-shot-me_beauty_pass");
    assert_eq!(name("show-shot-me_beauty"), "show-shot-me_beauty");
    assert_eq!(name("__a___b"), "show-shot-me_a_b");
    assert!(names::job("show", "shot", "me", "ab").is_err());
    assert_eq!(names::frame("0007-Layer").unwrap(), "0007-layer");
    for bad in ["7-layer", "0000007-layer", "layer", "00a7-layer"] {
        assert!(names::frame(bad).is_err(), "{bad}");
    }
}

#[test]
fn ranges_are_those_of_opencue() {
    for (range, expected) in [
        ("5", vec![5]),
        ("-3--1", vec![-3, -2, -1]),
        ("3-1", vec![3, 2, 1]),
        ("1-10x3", vec![1, 4, 7, 10]),
        ("10-1x-4", vec![10, 6, 2]),
        ("1-6y2", vec![2, 4, 6]),
        ("1-8:4", vec![1, 5, 3, 7, 2, 4, 6, 8]),
        ("1-3,2,9", vec![1, 2, 3, 2, 9]),
    ] {
        assert_eq!(frames::parse(range).unwrap(), expected, "{range}");
    }
    assert_eq!(frames::chunk_starts("1-3,2,9", 2).unwrap(), [1, 3]);
    assert_eq!(frames::chunk_starts("1-10", 1_000_000).unwrap(), [1]);
    for bad in ["", "-", "1-", "1-2z3", "1-2x", "99999999999", "1-2x3x4", "1,,2"] {
        assert!(matches!(frames::parse(bad), Err(RangeError::Syntax(_))), "{bad}");
    }
    for bad in ["1-10x0", "10-1x2", "1-10x-2"] {
        assert!(matches!(frames::parse(bad), Err(RangeError::Step(_))), "{bad}");
    }
    for bad in ["1-2000000000", "-2147483648-2147483647", "1-60000,1-60000"] {
        assert!(matches!(frames::parse(bad), Err(RangeError::TooMany(_))), "{bad}");
    }
}

#[test]
fn documents_that_ask_for_too_much_are_refused() {
    let entity = format!("<!DOCTYPE spec [<!ENTITY a \"aa\">]>{}", document("artist", "", ""));
    assert!(matches!(parse(&entity), Err(SpecError::Entity)));
    let deep = "<a>".repeat(100_000);
    assert!(matches!(parse(&deep), Err(SpecError::Xml(_))));
    let long = " ".repeat(spec::SPEC_BYTES_MAX + 1);
    assert!(matches!(parse(&long), Err(SpecError::Long(_))));
    let layer = |number: usize, range: &str| {
        format!(
            "<layer name=\"l{number:05}\" type=\"Util\"><cmd>true</cmd><range>{range}</range><chunk>1</chunk></layer>"
        )
    };
    let many =
        |layers: String| document("artist", "", "").replace("</layers>", &format!("{layers}</layers>"));
    let layers: String = (0..spec::LAYERS_MAX).map(|number| layer(number, "1")).collect();
    assert!(matches!(parse(&many(layers)), Err(SpecError::Many { what: "layer", .. })));
    let frames = layer(1, "1-60000") + &layer(2, "1-60000");
    assert!(matches!(parse(&many(frames)), Err(SpecError::Many { what: "frames", .. })));
    let twice = layer(1, "1") + &layer(1, "2");
    assert!(matches!(parse(&many(twice)), Err(SpecError::Twice { .. })));
}

#[test]
fn a_dependency_names_what_its_kind_needs() {
    let depend = |kind: &str, ends: &str| {
        let depends =
            format!("<depends><depend type=\"{kind}\" anyframe=\"True\">{ends}</depend></depends></spec>");
        parse(&document("artist", "", "").replace("</spec>", &depends)).map(|spec| spec.depends[0].clone())
    };
    let jobs = "<depjob>some_job</depjob><onjob>other_job</onjob>";
    assert!(!depend("JOB_ON_JOB", jobs).unwrap().any_frame);
    assert!(matches!(depend("LAYER_ON_LAYER", jobs), Err(SpecError::Missing { what: "deplayer", .. })));
    assert!(matches!(depend("FRAME_ON_FRAME", jobs), Err(SpecError::Missing { what: "depframe", .. })));
    assert!(matches!(depend("JOB_ON_MOON", jobs), Err(SpecError::Value { .. })));
    let layers =
        "<depjob>some_job</depjob><deplayer>one</deplayer><onjob>some_job</onjob><onlayer>two</onlayer>";
    assert!(depend("LAYER_ON_LAYER", layers).unwrap().any_frame);
    let same = "<depjob>some_job</depjob><depframe>0001-one</depframe><onjob>some_job</onjob><onframe>0001-one</onframe>";
    assert!(matches!(depend("FRAME_ON_FRAME", same), Err(SpecError::Value { .. })));
}

proptest! {
    /// A recorded document with bytes replaced, removed or repeated never panics, and what is accepted keeps
    /// the bounds.
    #[test]
    fn damaged_documents_never_panic(at in 0..RECORDED.len(), length in 0..40usize, with in "[ -~]{0,40}") {
        let end = (at + length).min(RECORDED.len());
        let mut bytes = RECORDED.as_bytes().to_vec();
        bytes.splice(at..end, with.bytes());
        if let Ok(spec) = parse(&String::from_utf8_lossy(&bytes)) {
            for job in &spec.jobs {
                prop_assert!(job.name.len() <= names::width::JOB && !job.name.contains('/'));
                let frames: usize = job.layers.iter().map(|layer| layer.frames.len()).sum();
                prop_assert!(frames <= frames::FRAMES_MAX);
            }
        }
    }

    /// Any text of a range's characters gives few frames or an error.
    #[test]
    fn any_range_is_bounded(range in "[0-9xy:,-]{0,24}") {
        if let Ok(frames) = frames::parse(&range) {
            prop_assert!(!frames.is_empty() || range.contains('y'));
            prop_assert!(frames.len() <= frames::FRAMES_MAX);
        }
    }
}
