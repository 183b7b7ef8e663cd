//! Each feature of templates as a submission, and each kind of mistake with its line and reason.

use expect_test::{Expect, expect};
use openjd_model::job::{StepParameterSpace, TaskParamRange, TaskParameter};
use openjd_model::{CallerLimits, DocumentType, StepParameterSpaceIterator, template::parse};
use proptest::prelude::*;
use std::collections::BTreeMap;
use windlass_api::{Param, PathFormat, PathRule, StepRequest, SubmitRequest, Values};
use windlass_openjd::{
    Format, Options, TEMPLATE_BYTES_MAX, TemplateError, TemplateParameter, parameters, path_mapping,
    submission, template_parameters,
};

fn options() -> Options {
    let rule = PathRule {
        source_format: PathFormat::Posix,
        source: "/artist".to_owned(),
        destination: "/farm".to_owned(),
    };
    Options {
        file: "job.yaml".to_owned(),
        template_dir: "/templates".to_owned(),
        current_dir: "/work".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]),
        path_mapping: vec![rule],
    }
}

fn submit(text: &str, given: &[&str]) -> Result<SubmitRequest, String> {
    let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
    let values = parameters(&given).map_err(|e| e.to_string())?;
    let request = submission(text, Format::Yaml, &values, &options()).map_err(|e| e.to_string())?;
    // The result is a submission that the server accepts.
    request.clone().into_spec("user").map_err(|e| e.to_string())?;
    Ok(request)
}

fn check(text: &str, given: &[&str], expected: Expect) {
    let request = submit(text, given).unwrap();
    expected.assert_eq(&serde_json::to_string_pretty(&request).unwrap());
}

fn refuse(text: &str, given: &[&str], expected: Expect) {
    expected.assert_eq(&submit(text, given).unwrap_err());
}

/// A template with one step, whose text ends with these lines.
fn with_step(lines: &str) -> String {
    format!(
        "specificationVersion: jobtemplate-2023-09\nname: T\nsteps:\n- name: S\n  script:\n    actions:\n      \
         onRun: {{command: run, args: ['{{{{Task.Param.F}}}}']}}\n{lines}"
    )
}

fn step_of(lines: &str) -> StepRequest {
    submit(&with_step(lines), &[]).unwrap().steps.remove(0)
}

const SPACE: &str =
    "  parameterSpace:\n    taskParameterDefinitions:\n    - {name: F, type: INT, range: 1-3}\n";

#[test]
fn a_parameter_in_chunks_varies_fastest() {
    let text = with_step(
        "  parameterSpace:\n    taskParameterDefinitions:\n    - {name: F, type: 'CHUNK[INT]', range: 1-9, chunks: \
         {defaultTaskCount: 2, targetRuntimeSeconds: 30, rangeConstraint: NONCONTIGUOUS}}\n    - {name: G, type: STRING, \
         range: [a, b]}\n    combination: F * G\n",
    );
    let text = text.replace("name: T", "name: T\nextensions: [TASK_CHUNKING]");
    let step = submit(&text, &[]).unwrap().steps.remove(0);
    let chunks = step.chunks.unwrap();
    assert_eq!((chunks.tasks, chunks.target_ms, chunks.block), (Some(2), Some(30_000), None));
    let Some(Param::Space(space)) = step.param else { panic!() };
    let second = space.values(1).into_iter().find(|(param, _)| param.name == "F");
    assert_eq!(second.map(|(_, value)| value).as_deref(), Some("2"), "the second task has the second frame");
}

/// The model in Python makes these texts of these numbers (openjd-model 0.13.0).
const SPELT: [(&str, &str); 14] = [
    ("3", "3"),
    ("3.0", "3.0"),
    ("1.50", "1.5"),
    ("-2", "-2"),
    ("0.1", "0.1"),
    ("0.0001", "0.0001"),
    ("0.000001", "0.000001"),
    ("0.0000001", "1E-7"),
    ("1.5e-10", "1.5E-10"),
    ("1.0e+15", "1000000000000000.0"),
    ("1.0e+20", "1E+20"),
    ("12345678901234568.0", "12345678901234568"),
    ("123456789012345680000.0", "1.2345678901234568E+20"),
    ("100000000000000000", "100000000000000000"),
];

#[test]
fn numbers_of_float_parameters_are_spelt_as_the_model_in_python_spells_them() {
    let floats = |range: &str| {
        let step = step_of(&format!(
            "  parameterSpace: {{taskParameterDefinitions: [{{name: F, type: FLOAT, range: [{range}]}}]}}\n"
        ));
        let Some(Param::Space(space)) = step.param else { panic!() };
        let Values::List(values) = space.params[0].values.clone() else { panic!() };
        values
    };
    for (written, expected) in SPELT {
        assert_eq!(floats(written), [expected], "{written}");
        let text = with_step("").replace("Task.Param.F", "Param.X").replace(
            "name: T",
            &format!("name: T\nparameterDefinitions: [{{name: X, type: FLOAT, default: {written}}}]"),
        );
        let step = submit(&text, &[]).unwrap().steps.remove(0);
        assert_eq!(step.command, ["run", expected], "{written} as a default");
    }
    // What the author or the user wrote as a text is kept.
    assert_eq!(floats("'3', '2.50', '1e-7'"), ["3", "2.50", "1e-7"]);
}

#[test]
fn a_template_becomes_a_submission() {
    let text = r#"
specificationVersion: jobtemplate-2023-09
name: Render {{Param.Scene}}
parameterDefinitions:
- {name: Frames, type: STRING}
- {name: Scene, type: STRING, default: "a{{b"}
- {name: Out, type: PATH, default: out}
- {name: In, type: PATH}
jobEnvironments:
- name: Licence
  variables: {SERVER: "{{Param.Scene}}"}
steps:
- name: Render
  stepEnvironments:
  - name: Renderer
    script:
      embeddedFiles:
      - {name: Up, type: TEXT, runnable: true, data: "start {{Session.WorkingDirectory}}"}
      actions:
        onEnter: {command: "{{Env.File.Up}}", timeout: 10}
        onExit: {command: stop, cancelation: {mode: NOTIFY_THEN_TERMINATE}}
  parameterSpace:
    taskParameterDefinitions:
    - {name: Frame, type: INT, range: "{{Param.Frames}}"}
    - {name: Camera, type: STRING, range: [left, right]}
    - {name: Tile, type: PATH, range: [/artist/a, /artist/b]}
    combination: Frame * (Camera, Tile)
  script:
    embeddedFiles:
    - {name: Conf, type: TEXT, filename: conf.txt, data: "{{Task.Param.Frame}}"}
    actions:
      onRun:
        command: render
        args: ["{{Param.In}}", "{{RawParam.In}}", "{{Param.Out}}", "{{Task.File.Conf}}", "{{ Task.RawParam.Tile }}"]
        timeout: 60
        cancelation: {mode: NOTIFY_THEN_TERMINATE, notifyPeriodInSeconds: 5}
- name: Join
  dependencies: [{dependsOn: Render}]
  script: {actions: {onRun: {command: join}}}
"#;
    check(
        text,
        &["Frames=1-3,7", "In=/artist/scene.pov"],
        expect![[r#"
        {
          "name": "Render a{{b",
          "priority": 0,
          "placeable_only": false,
          "steps": [
            {
              "name": "Render",
              "command": [
                "render",
                "/farm/scene.pov",
                "/artist/scene.pov",
                "/templates/out",
                "{{Task.File.Conf}}",
                "{{ Task.RawParam.Tile }}"
              ],
              "env": {
                "PATH": "/bin"
              },
              "param": {
                "space": {
                  "params": [
                    {
                      "name": "Frame",
                      "values": {
                        "ranges": [
                          {
                            "start": 1,
                            "end": 3,
                            "step": 1
                          },
                          {
                            "start": 7,
                            "end": 7,
                            "step": 1
                          }
                        ]
                      }
                    },
                    {
                      "name": "Camera",
                      "values": {
                        "list": [
                          "left",
                          "right"
                        ]
                      }
                    },
                    {
                      "name": "Tile",
                      "path": true,
                      "values": {
                        "list": [
                          "/artist/a",
                          "/artist/b"
                        ]
                      }
                    }
                  ],
                  "combination": {
                    "product": [
                      {
                        "param": "Frame"
                      },
                      {
                        "association": [
                          {
                            "param": "Camera"
                          },
                          {
                            "param": "Tile"
                          }
                        ]
                      }
                    ]
                  }
                }
              },
              "resources": {
                "cpus": 1.0,
                "memory": 0
              },
              "time_limit_ms": 60000,
              "retries": 0,
              "session": {
                "files": [
                  {
                    "name": "Conf",
                    "filename": "conf.txt",
                    "data": "{{Task.Param.Frame}}"
                  }
                ],
                "environments": [
                  {
                    "name": "Licence",
                    "variables": {
                      "SERVER": "a{{Brace}}{{Brace}}b"
                    }
                  },
                  {
                    "name": "Renderer",
                    "files": [
                      {
                        "name": "Up",
                        "data": "start {{Session.WorkingDirectory}}",
                        "runnable": true
                      }
                    ],
                    "on_enter": {
                      "command": [
                        "{{Env.File.Up}}"
                      ],
                      "timeout_ms": 10000,
                      "cancel": "terminate"
                    },
                    "on_exit": {
                      "command": [
                        "stop"
                      ],
                      "cancel": {
                        "notify_then_terminate": 30000
                      }
                    }
                  }
                ],
                "cancel": {
                  "notify_then_terminate": 5000
                },
                "path_mapping": [
                  {
                    "source_format": "POSIX",
                    "source": "/artist",
                    "destination": "/farm"
                  }
                ]
              }
            },
            {
              "name": "Join",
              "command": [
                "join"
              ],
              "env": {
                "PATH": "/bin"
              },
              "resources": {
                "cpus": 1.0,
                "memory": 0
              },
              "retries": 0,
              "depends": [
                {
                  "on": "Render",
                  "by": "step"
                }
              ],
              "session": {
                "environments": [
                  {
                    "name": "Licence",
                    "variables": {
                      "SERVER": "a{{Brace}}{{Brace}}b"
                    }
                  }
                ],
                "cancel": "terminate",
                "path_mapping": [
                  {
                    "source_format": "POSIX",
                    "source": "/artist",
                    "destination": "/farm"
                  }
                ]
              }
            }
          ]
        }"#]],
    );
}

#[test]
fn a_maximum_of_cpus_becomes_a_range() {
    let cpus = |amount: &str| {
        let step = step_of(&format!(
            "{SPACE}  hostRequirements:\n    amounts:\n    - {{name: amount.worker.vcpu, {amount}}}\n"
        ));
        (step.resources.unwrap().cpus, step.cpus_max)
    };
    assert_eq!(cpus("min: 2, max: 16"), (2.0, Some(16.0)));
    assert_eq!(cpus("max: 16"), (1.0, Some(16.0)));
    assert_eq!(cpus("max: 0.5"), (0.5, None));
    assert_eq!(cpus("min: 4, max: 4"), (4.0, None));
}

#[test]
fn requirements_become_resources_and_tags() {
    let step = step_of(&format!(
        "{SPACE}  hostRequirements:
    amounts:
    - {{name: amount.worker.vcpu, min: 2.5}}
    - {{name: amount.worker.memory, min: 512, max: 1024}}
    - {{name: amount.worker.gpu, min: 1}}
    - {{name: amount.worker.gpu.memory, min: 1}}
    - {{name: amount.worker.disk.scratch, min: 3}}
    - {{name: amount.licences, min: 1.5}}
    attributes:
    - {{name: attr.worker.os.family, anyOf: [linux, macos]}}
    - {{name: attr.worker.cpu.arch, anyOf: [x86_64, arm64]}}
    - {{name: attr.custom.mounts, allOf: [show, assets]}}
"
    ));
    expect![[r#"
        (
            Some(
                Resources {
                    cpus: 2.5,
                    memory: 536870912,
                    gpus: 1,
                    gpu_memory: 1048576,
                    custom: {
                        "disk.scratch": 3,
                        "licences": 2,
                    },
                },
            ),
            [
                "os=linux|macos",
                "arch=x86_64|aarch64",
                "custom.mounts=show",
                "custom.mounts=assets",
            ],
        )
    "#]]
    .assert_debug_eq(&(step.resources, step.tags));
}

#[test]
fn a_step_without_requirements_needs_one_cpu() {
    assert_eq!(step_of(SPACE).resources.unwrap().cpus, 1.0);
}

#[test]
fn json_is_read_too() {
    let text = r#"{"specificationVersion": "jobtemplate-2023-09", "name": "J",
        "steps": [{"name": "S", "script": {"actions": {"onRun": {"command": "true"}}}}]}"#;
    let request = submission(text, Format::Json, &BTreeMap::new(), &options()).unwrap();
    assert_eq!((request.name.as_deref(), request.steps.len()), (Some("J"), 1));
    let broken = text.replace("\"onRun\"", "\n\"onRum\"");
    let error = submission(&broken, Format::Json, &BTreeMap::new(), &options()).unwrap_err();
    expect!["job.yaml:3: steps[0] -> script -> actions -> onRum: unknown field `onRum`, expected `onRun`"]
        .assert_eq(&error.to_string());
}

#[test]
fn mistakes_have_lines() {
    refuse(
        "name: [",
        &[],
        expect!["job.yaml:1: this is not YAML: error: line 1 column 7: unclosed bracket '['"],
    );
    refuse(
        "name: a\nname: b\n",
        &[],
        expect!["job.yaml:2: this is not YAML: error: line 2 column 1: this field is there twice: name"],
    );
    refuse(
        "a: 1\n",
        &[],
        expect![
            "job.yaml: Template is missing Open Job Description schema version key: specificationVersion"
        ],
    );
    refuse(
        &with_step(""),
        &[],
        expect![
            "job.yaml:7: steps[0] -> script -> actions -> onRun -> args[0]: Undefined variable: 'Task.Param.F'."
        ],
    );
    refuse(
        &with_step(&format!("{SPACE}  scripts: 1\n")),
        &[],
        expect![
            "job.yaml:11: steps[0] -> scripts: unknown field `scripts`, expected one of `name`, `description`, `let`, `dependencies`, `stepEnvironments`, `hostRequirements`, `parameterSpace`, `script`, `bash`, `python`, `cmd`, `powershell`, `node`"
        ],
    );
    refuse(
        &with_step(&format!("{SPACE}    combination: F * G\n")),
        &[],
        expect!["job.yaml:11: steps[0] -> parameterSpace -> combination: references unknown parameter 'G'."],
    );
    refuse(
        &with_step(&SPACE.replace("1-3", "3-1")),
        &[],
        expect![
            "job.yaml:10: steps[0] -> parameterSpace -> taskParameterDefinitions[0]: INT parameter 'F' range expression error: Descending range 3-1 requires a negative step"
        ],
    );
    refuse(
        &with_step(&format!("{SPACE}  dependencies:\n  - dependsOn: Nobody\n")),
        &[],
        expect!["job.yaml:12: steps[0] -> dependencies[0]: dependency 'Nobody' not found."],
    );
    let extended = with_step(SPACE).replace("name: T", "name: T\nextensions: [EXPR, TASK_CHUNKING]");
    refuse(&extended, &[], expect!["job.yaml:3: extensions: Unsupported extension names: EXPR"]);
    refuse(
        &with_step(SPACE).replace("onRun: {", "onRun: {timeout: soon, "),
        &[],
        expect!["job.yaml:7: steps[0] -> script -> actions -> onRun: timeout must be a positive integer."],
    );
}

/// A template with an INT parameter X, whose step has a task for each element of a list.
fn with_list(kind: &str, list: &str) -> String {
    let space = SPACE.replace("type: INT, range: 1-3", &format!("{kind}, range: {list}"));
    with_step(&space).replace(
        "name: T",
        "name: T\nextensions: [TASK_CHUNKING]\nparameterDefinitions:\n- {name: X, type: INT}",
    )
}

#[test]
fn elements_of_a_list_of_numbers_may_be_references() {
    let values = |kind: &str| {
        let step = submit(&with_list(kind, "[7, '{{Param.X}}', '{{ RawParam.X }}1', '-2']"), &["X=5"]);
        let Some(Param::Space(mut space)) = step.unwrap().steps.remove(0).param else { panic!("no space") };
        space.params.remove(0).values
    };
    let expected = Values::List(["7", "5", "51", "-2"].map(str::to_owned).into());
    assert_eq!(values("type: INT"), expected);
    let chunks = "type: 'CHUNK[INT]', chunks: {defaultTaskCount: 2, rangeConstraint: CONTIGUOUS}";
    assert_eq!(values(chunks), expected);
    refuse(
        &with_list("type: INT", "[1, '{{Param.Y}}']"),
        &["X=5"],
        expect![
            "job.yaml:13: steps[0] -> parameterSpace -> taskParameterDefinitions[0] -> range[1]: Undefined variable: \
             'Param.Y'."
        ],
    );
    refuse(
        &with_list("type: INT", "['{{Param.X}}.5']"),
        &["X=5"],
        expect![
            "job.yaml:13: steps[0] -> parameterSpace -> taskParameterDefinitions[0] -> range[0]: '{{Param.X}}.5' is '5.5', \
             which is not a whole number"
        ],
    );
    let listed = template_parameters(&with_list("type: INT", "['{{Param.Y}}']"), Format::Yaml, "job.yaml");
    assert!(listed.unwrap_err().to_string().contains("Undefined variable"));
    assert!(submit(&with_list("type: INT", "['{{Param.X']"), &["X=5"]).is_err());
}

#[test]
fn braces_in_the_name_of_a_step_are_nothing_but_braces() {
    let two = |name: &str, on: &str| {
        let more = format!(
            "{SPACE}- name: Join\n  dependencies: [{{dependsOn: '{on}'}}]\n  script: {{actions: {{onRun: {{command: \
             join}}}}}}\n"
        );
        with_step(&more).replace("name: S", &format!("name: '{name}'"))
    };
    let name = "{{Param.CompName}} a {{ b {{{";
    let request = submit(&two(name, name), &[]).unwrap();
    assert_eq!(request.steps[0].name.as_deref(), Some(name));
    assert_eq!(request.steps[1].depends[0].on, name);
    refuse(
        &two("a", "{{b"),
        &[],
        expect!["job.yaml:12: steps[1] -> dependencies[0]: dependency '{{b' not found."],
    );
    assert!(
        submit(&two(&"{{".repeat(32), "x"), &[]).unwrap_err().contains("not found"),
        "64 characters are allowed"
    );
    assert!(submit(&two(&"{{".repeat(33), "x"), &[]).unwrap_err().contains("64"));
}

#[test]
fn a_parameter_that_is_chosen_as_a_file_is_a_file() {
    let text = |more: &str| {
        let definition = format!("- {{name: In, type: PATH, default: a{more}}}");
        with_step(SPACE).replace("name: T", &format!("name: T\nparameterDefinitions:\n{definition}"))
    };
    for control in ["CHOOSE_INPUT_FILE", "CHOOSE_OUTPUT_FILE"] {
        let chosen = format!(
            ", userInterface: {{control: {control}, fileFilters: [{{label: All, patterns: ['*.*']}}]}}"
        );
        assert!(submit(&text(&chosen), &[]).is_ok());
        let error = submit(&text(&format!("{chosen}, objectType: DIRECTORY")), &[]).unwrap_err();
        assert!(error.contains("requires objectType FILE"), "{error}");
    }
    assert!(submit(&text(", userInterface: {control: CHOOSE_DIRECTORY}"), &[]).is_ok());
}

#[test]
fn wrong_values_are_named() {
    let text = with_step(SPACE).replace(
        "name: T\n",
        "name: T\nparameterDefinitions:\n- {name: N, type: INT, maxValue: 5}\n- name: Kind\n  type: STRING\n  \
         allowedValues: [a, b]\n",
    );
    refuse(&text, &[], expect!["job.yaml: Values missing for required job parameters: Kind, N"]);
    refuse(
        &text,
        &["N=9", "Kind=c"],
        expect![[r#"
        job.yaml:4: parameterDefinitions[0]: Parameter 'N': value 9 exceeds maximum 5
        job.yaml:5: parameterDefinitions[1]: Parameter 'Kind': value 'c' is not in allowed values"#]],
    );
    refuse(
        &text,
        &["N=x", "Kind=a", "Other=1"],
        expect![[r#"
        job.yaml:4: parameterDefinitions[0]: Parameter 'N': Value 'x' is not a valid integer or integer string.
        job.yaml: the template has no parameter 'Other'; it has N, Kind"#]],
    );
    refuse(
        &text,
        &["N=1", "Kidn=a"],
        expect![[r#"
        job.yaml: Values missing for required job parameters: Kind
        job.yaml: the template has no parameter 'Kidn'; did you mean 'Kind'? It has N, Kind"#]],
    );
    refuse(&text, &["N"], expect!["-p N: parameters look like NAME=VALUE, file://PATH or @PATH"]);
    assert!(submit(&text, &["N=5", "Kind=a"]).is_ok());
}

#[test]
fn parameters_are_listed_as_they_are_described() {
    let text = with_step(SPACE).replace(
        "name: T\n",
        "name: T\nparameterDefinitions:\n- {name: N, type: INT, minValue: 1, maxValue: 5, default: 2}\n- name: Kind\n  \
         type: STRING\n  allowedValues: [a, b]\n  description: How it is made\n",
    );
    let listed = template_parameters(&text, Format::Yaml, "job.yaml").unwrap();
    let some = |text: &str| Some(text.to_owned());
    let number = TemplateParameter {
        name: "N".to_owned(),
        value_type: "INT".to_owned(),
        default: some("2"),
        min: some("1"),
        max: some("5"),
        ..TemplateParameter::default()
    };
    let kind = TemplateParameter {
        name: "Kind".to_owned(),
        value_type: "STRING".to_owned(),
        allowed: vec!["a".to_owned(), "b".to_owned()],
        description: some("How it is made"),
        ..TemplateParameter::default()
    };
    assert_eq!(listed, [number, kind]);
    assert!(template_parameters(&with_step(SPACE), Format::Yaml, "job.yaml").unwrap().is_empty());
    let wrong = template_parameters(&text.replace("INT, min", "INTEGER, min"), Format::Yaml, "job.yaml");
    assert!(matches!(wrong, Err(TemplateError::Mistakes(_))), "{wrong:?}");
}

#[test]
fn values_come_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("params.yaml");
    std::fs::write(&path, "N: 4\nKind: \"a=b\"\nOn: true\n").unwrap();
    let given = |text: String| parameters(&[text, "N=5".to_owned()]);
    let values = given(format!("file://{}", path.display())).unwrap();
    assert_eq!(values, given(format!("@{}", path.display())).unwrap());
    let values: Vec<_> = values.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(values, ["Kind=a=b", "N=5", "On=true"]);
    std::fs::write(&path, "N: [1]\n").unwrap();
    let error = given(format!("@{}", path.display())).unwrap_err().to_string();
    assert!(error.ends_with("the value of 'N' is neither a text nor a number"), "{error}");
    assert!(given("@/no/such/file".to_owned()).is_err());
}

#[test]
fn path_mapping_rules_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.json");
    let text = r#"{"version": "pathmapping-1.0", "path_mapping_rules": [
        {"source_path_format": "WINDOWS", "source_path": "Z:\\", "destination_path": "/mnt"}]}"#;
    std::fs::write(&path, text).unwrap();
    let rules = path_mapping(&path).unwrap();
    assert_eq!(windlass_api::map_path(&rules, r"z:\a\b"), "/mnt/a/b");
    std::fs::write(&path, text.replace("1.0", "2.0")).unwrap();
    assert!(path_mapping(&path).unwrap_err().to_string().contains("pathmapping-1.0"));
}

/// Every template of the specification that this version supports. Set `OPENJD_SAMPLES` to its `samples`.
#[test]
fn samples_of_the_specification_are_taken() {
    let Some(dir) = std::env::var_os("OPENJD_SAMPLES").filter(|dir| !dir.is_empty()) else {
        println!("SKIP samples_of_the_specification_are_taken: OPENJD_SAMPLES names no directory");
        return;
    };
    let dir = std::path::Path::new(&dir).join("v2023-09/job_templates");
    let mut taken = 0;
    for entry in std::fs::read_dir(&dir).unwrap().flatten().filter(|e| e.path().is_file()) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let value =
            parse::document_string_to_object(&text, DocumentType::Yaml, &CallerLimits::default()).unwrap();
        let definitions = value["parameterDefinitions"].as_array().cloned().unwrap_or_default();
        let missing = definitions.iter().filter(|definition| definition.get("default").is_none());
        let given: Vec<String> = missing.map(|d| format!("{}=1", d["name"].as_str().unwrap())).collect();
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        submit(&text, &given).unwrap_or_else(|e| panic!("{}: {e}", entry.path().display()));
        taken += 1;
    }
    assert!(taken > 0, "no template in {}", dir.display());
}

/// A parameter of integer ranges or of words.
fn param(n: usize) -> impl Strategy<Value = (String, TaskParameter)> {
    let name = format!("P{n}");
    let words = (1usize..4).prop_map(|n| (0..n).map(|i| format!("w{i}")).collect::<Vec<_>>());
    let numbers = prop::collection::vec((0i64..20, 0i64..6, 1i64..4), 1..3).prop_map(|ranges| {
        let texts = ranges.iter().enumerate().map(|(i, (start, n, step))| {
            let start = start + 1000 * i as i64;
            format!("{start}-{}:{step}", start + n)
        });
        texts.collect::<Vec<_>>().join(",")
    });
    prop_oneof![
        words.prop_map(|range| TaskParameter::String { range }),
        numbers.prop_map(|text| TaskParameter::Int {
            range: TaskParamRange::RangeExpr(text.parse().unwrap()),
            chunks: None
        }),
    ]
    .prop_map(move |param| (name.clone(), param))
}

proptest! {
    /// The values of each task are those of the model's own library.
    #[test]
    fn values_by_place_are_those_of_the_library(
        a in param(0), b in param(1), c in param(2), form in 0usize..4
    ) {
        let combination = [None, Some("P2 * P0 * P1"), Some("P1 * (P0, P2)"), Some("(P0 * P1, P2)")][form];
        let space = StepParameterSpace {
            task_parameter_definitions: [a, b, c].into_iter().collect(),
            combination: combination.map(str::to_owned),
        };
        // Both refuse associations of unequal lengths.
        let theirs = StepParameterSpaceIterator::new(&space);
        let ours = windlass_openjd::space(&space).unwrap();
        prop_assert_eq!(theirs.is_ok(), ours.count().is_ok());
        let Ok(theirs) = theirs else { return Ok(()) };
        prop_assert_eq!(ours.count().unwrap(), theirs.len() as u128);
        for place in 0..theirs.len() {
            let expected = theirs.get(place).unwrap();
            for (param, value) in ours.values(place as u32) {
                prop_assert_eq!(value, expected[&param.name].value.to_display_string());
            }
        }
    }

    /// Any text gives a submission or an error, and no panic.
    #[test]
    fn any_text_is_a_template_or_a_mistake(text in "[a-z:\\- \\n{}\\[\\],\"'|&*#]{0,200}") {
        prop_assert!(submission(&text, Format::Yaml, &BTreeMap::new(), &options()).is_err());
        prop_assert!(submission(&text, Format::Json, &BTreeMap::new(), &options()).is_err());
    }

    /// A template with one line changed gives a submission, or an error with a reason.
    #[test]
    fn a_nearly_right_template_is_taken_or_refused(line in 0usize..12, with in "[ \\-a-z:{}]{0,20}") {
        let text = with_step(SPACE);
        let mut lines: Vec<&str> = text.lines().collect();
        if let Some(line) = lines.get_mut(line) {
            *line = &with;
        }
        if let Err(error) = submit(&lines.join("\n"), &[]) {
            prop_assert!(!error.is_empty());
        }
    }
}

#[test]
fn a_large_space_is_a_short_submission() {
    let text = with_step(&SPACE.replace("1-3", "1-1000000"));
    let request = submit(&text, &[]).unwrap();
    assert!(serde_json::to_string(&request).unwrap().len() < 1000);
    let Some(Param::Space(space)) = &request.steps[0].param else { panic!("no space") };
    assert_eq!(space.values(999_999)[0].1, "1000000");
}

#[test]
fn a_template_over_the_limit_is_refused() {
    let text = format!("{}# {}", with_step(SPACE), "x".repeat(TEMPLATE_BYTES_MAX));
    assert!(submit(&text, &[]).unwrap_err().contains("exceeds"));
}
