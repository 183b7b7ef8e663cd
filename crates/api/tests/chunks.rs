//! Chunks of a submission, as the core gets them.

use windlass_api::{Step, SubmitRequest};
use windlass_core::job::{ChunkSize, Chunks, EqualRuns, JobSpec};

fn spec(param: &str, chunks: &str) -> Result<JobSpec, String> {
    let step = format!(r#"{{"command": ["render", "{{}}"], "param": {param}, "chunks": {chunks}}}"#);
    let request: SubmitRequest = serde_json::from_str(&format!(r#"{{"steps": [{step}]}}"#)).unwrap();
    request.into_spec("ann").map_err(|e| e.to_string())
}

#[test]
fn a_range_of_numbers_has_runs() {
    let of = |param: &str, chunks: &str| spec(param, chunks).unwrap().steps.remove(0).chunks.unwrap();
    let run = |tasks, end| EqualRuns { tasks, end };
    let size = ChunkSize::Fixed(5);
    let twelve = r#"{"range": {"start": 1, "end": 12}}"#;
    let odd = r#"{"range": {"start": 1, "end": 9, "step": 2}}"#;
    let contiguous = r#"{"tasks": 5, "range": "contiguous"}"#;
    assert_eq!(of(twelve, contiguous), Chunks { block: 12, runs: vec![run(12, 12)], size });
    assert_eq!(of(odd, contiguous), Chunks { block: 5, runs: vec![run(1, 5)], size });
    let noncontiguous = r#"{"tasks": 5, "range": "noncontiguous"}"#;
    assert_eq!(of(odd, noncontiguous), Chunks { block: 5, runs: vec![run(5, 5)], size });
    assert_eq!(of(twelve, r#"{"tasks": 5}"#), Chunks { block: 12, runs: Vec::new(), size });
    let shown = Step::all_from_core(&spec(twelve, contiguous).unwrap()).remove(0);
    assert_eq!((shown.tasks, shown.processes), (12, Some(3)));
    let learned = Step::all_from_core(&spec(twelve, r#"{"range": "contiguous"}"#).unwrap()).remove(0);
    assert_eq!(learned.processes, None);
}

#[test]
fn a_range_is_for_numbers_and_says_where_chunks_end() {
    let refused = spec(r#"{"values": ["a", "b"]}"#, r#"{"range": "contiguous"}"#).unwrap_err();
    assert!(refused.contains("range is for numbers"), "{refused}");
    let refused =
        spec(r#"{"range": {"start": 1, "end": 4}}"#, r#"{"range": "contiguous", "block": 2}"#).unwrap_err();
    assert!(refused.contains("leave block out"), "{refused}");
}
