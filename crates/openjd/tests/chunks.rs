//! Chunks as RFC 0001 of Open Job Description describes them, with what its conformance tests and its model's library
//! expect.

use openjd_model::job::{ResolvedChunks, StepParameterSpace, TaskParamRange, TaskParameter};
use openjd_model::{StepParameterSpaceIterator, template::RangeConstraint};
use proptest::prelude::*;
use windlass_api::StepBody;
use windlass_openjd::{Format, Options, TemplateError, parameters, submission};

/// A template with one step, which has one parameter in chunks.
fn template(range: &str, chunks: &str) -> String {
    format!(
        "specificationVersion: jobtemplate-2023-09\nextensions: [TASK_CHUNKING]\nname: T\nsteps:\n- name: S\n  \
         parameterSpace:\n    taskParameterDefinitions:\n    - {{name: Frame, type: 'CHUNK[INT]', range: {range}, \
         chunks: {{{chunks}}}}}\n  script: {{actions: {{onRun: {{command: render, args: ['{{{{Task.Param.Frame}}}}']}}}}}}\n"
    )
}

/// What the processes of the first step of a template get for its parameter, in the order of their tasks.
fn values(text: &str, given: &[&str]) -> Result<Vec<String>, TemplateError> {
    let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
    let options = Options { template_dir: "/".to_owned(), current_dir: "/".to_owned(), ..Options::default() };
    let request = submission(text, Format::Yaml, &parameters(&given)?, &options)?;
    let step = request.into_spec("user").unwrap().steps.remove(0);
    let body: StepBody = serde_json::from_slice(&step.body).unwrap();
    let chunks = step.chunks.unwrap();
    let mut values = Vec::new();
    let mut head = 0;
    while head < step.tasks {
        let end = chunks.end(head);
        let others: Vec<u32> = (head + 1..end).collect();
        let of_process = body.chunk_values(head, &others).params;
        values.push(of_process.into_iter().find(|value| value.name == "Frame").unwrap().value);
        head = end;
    }
    if let Some(count) = chunks.count(step.tasks) {
        assert_eq!(count as usize, values.len());
    }
    Ok(values)
}

fn of(range: &str, size: u32, constraint: &str) -> Vec<String> {
    values(&template(range, &format!("defaultTaskCount: {size}, rangeConstraint: {constraint}")), &[])
        .unwrap()
}

#[test]
fn contiguous_chunks_end_at_gaps_are_of_equal_length_and_always_have_two_ends() {
    for (range, size, expected) in [
        // The first example of the RFC, where it has no target.
        ("'1,10-12,18-50'", 10, "1-1 10-12 18-26 27-34 35-42 43-50"),
        ("'7,12-14,95'", 10, "7-7 12-14 95-95"),
        // chunk-3.4.1.5--contiguous-uneven and larger-than-range of the conformance tests.
        ("1-12", 5, "1-4 5-8 9-12"),
        ("1-5", 100, "1-5"),
        ("1-10", 3, "1-3 4-5 6-8 9-10"),
        ("'1-4,8-10'", 3, "1-2 3-4 8-10"),
        ("'1-9:2'", 2, "1-1 3-3 5-5 7-7 9-9"),
        ("'-3--1,1'", 2, "-3--2 -1--1 1-1"),
        ("[3, 4, '5', 1]", 2, "3-4 5-5 1-1"),
    ] {
        assert_eq!(of(range, size, "CONTIGUOUS").join(" "), expected, "{range} in chunks of {size}");
    }
}

#[test]
fn noncontiguous_chunks_are_of_equal_length_and_two_numbers_are_a_list() {
    for (range, size, expected) in [
        // noncontiguous and noncontiguous-format of the conformance tests.
        ("1-10", 5, "1-5 6-10"),
        ("1-8", 3, "1-3 4-6 7,8"),
        ("1-12", 5, "1-4 5-8 9-12"),
        ("'1-60:2'", 10, "1-19:2 21-39:2 41-59:2"),
        ("'1,3,4,7,8,10'", 6, "1,3,4,7,8,10"),
    ] {
        assert_eq!(of(range, size, "NONCONTIGUOUS").join(" "), expected, "{range} in chunks of {size}");
    }
}

#[test]
fn sizes_and_targets_may_be_parameters() {
    let with = |definition: &str, chunks: &str, range: &str| {
        let text = template(range, chunks);
        text.replace("name: T", &format!("name: T\nparameterDefinitions:\n- {definition}"))
    };
    // default-task-count-format-string of the conformance tests.
    let size = "defaultTaskCount: '{{Param.Size}}', rangeConstraint: CONTIGUOUS";
    let text = with("{name: Size, type: INT, default: 3}", size, "1-8");
    assert_eq!(values(&text, &[]).unwrap(), ["1-3", "4-6", "7-8"]);
    // target-runtime-seconds-format-string: a target of 0 is none.
    let target = "defaultTaskCount: 2, targetRuntimeSeconds: '{{Param.Target}}', rangeConstraint: CONTIGUOUS";
    let text = with("{name: Target, type: INT, default: '00'}", target, "1-6");
    assert_eq!(values(&text, &[]).unwrap(), ["1-2", "3-4", "5-6"]);
    // default-task-count-format-string-resolves-to-zero.
    let text = with("{name: Size, type: INT, default: '0'}", size, "1-8");
    assert!(values(&text, &[]).unwrap_err().to_string().contains("must be >= 1"));
}

#[test]
fn chunks_that_make_no_sense_are_refused() {
    let good = template("1-10", "defaultTaskCount: 5, rangeConstraint: CONTIGUOUS");
    assert!(values(&good, &[]).is_ok());
    for (what, text) in [
        ("no extension", good.replace("extensions: [TASK_CHUNKING]\n", "")),
        ("an unknown constraint", good.replace("CONTIGUOUS", "CLOSE")),
        ("a negative target", good.replace("chunks: {", "chunks: {targetRuntimeSeconds: -1, ")),
        ("no chunks", good.replace(", chunks: {defaultTaskCount: 5, rangeConstraint: CONTIGUOUS}", "")),
        (
            "two parameters in chunks",
            good.replace(
                "  script:",
                "    - {name: G, type: 'CHUNK[INT]', range: 1-2, chunks: {defaultTaskCount: 1, rangeConstraint: \
                 CONTIGUOUS}}\n  script:",
            ),
        ),
    ] {
        assert!(values(&text, &[]).is_err(), "{what}");
    }
}

/// A parameter space of frames in chunks.
fn space(numbers: &str, size: usize, range_constraint: RangeConstraint) -> StepParameterSpace {
    let chunks = ResolvedChunks { default_task_count: size, target_runtime_seconds: None, range_constraint };
    let range = TaskParamRange::RangeExpr(numbers.parse().unwrap());
    StepParameterSpace {
        task_parameter_definitions: [("Frame".to_owned(), TaskParameter::ChunkInt { range, chunks })]
            .into_iter()
            .collect(),
        combination: None,
    }
}

proptest! {
    /// The chunks of any numbers are those of the model's own library. Where numbers need not follow each other it puts the
    /// longer chunks first, and its own programs do not: there are as many.
    #[test]
    fn chunks_are_those_of_the_library(
        of_numbers in prop::collection::vec((1i64..5, 0i64..30, 1i64..4), 1..6), size in 1usize..12,
    ) {
        let mut next = -20;
        let ranges = of_numbers.into_iter().map(|(gap, more, step)| {
            let (start, end) = (next + gap, next + gap + more);
            next = end;
            format!("{start}-{end}:{step}")
        });
        let numbers = ranges.collect::<Vec<_>>().join(",");
        for (constraint, word) in
            [(RangeConstraint::Contiguous, "CONTIGUOUS"), (RangeConstraint::Noncontiguous, "NONCONTIGUOUS")]
        {
            let space = space(&numbers, size, constraint);
            let theirs = StepParameterSpaceIterator::new(&space).unwrap();
            let theirs: Vec<String> = theirs.map(|set| set["Frame"].value.to_display_string()).collect();
            let ours = of(&format!("'{numbers}'"), size as u32, word);
            prop_assert_eq!(ours.len(), theirs.len());
            if word == "CONTIGUOUS" {
                prop_assert_eq!(ours, theirs);
            }
        }
    }
}
