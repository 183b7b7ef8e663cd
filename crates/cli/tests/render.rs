//! A render of 100 frames: the template of the documents, with POV-Ray.

use crate::support::{Farm, names};
use std::path::Path;
use std::process::Command;

#[test]
fn a_film_of_100_frames_is_rendered_and_assembled() {
    if Command::new("povray").arg("--version").output().is_err() {
        println!("SKIP a_film_of_100_frames_is_rendered_and_assembled: needs povray");
        return;
    }
    let farm = Farm::with_server(&["--cpus", "2"]);
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/render/job.yaml");
    let template = template.canonicalize().unwrap();
    let out = farm.ok(&[
        "run",
        "-f",
        template.to_str().unwrap(),
        "-p",
        "Out=film",
        "-p",
        "Width=40",
        "-p",
        "Height=30",
    ]);
    assert!(out.contains("100 frames"), "{out}");
    let frames = names(&farm.work().join("film"));
    assert_eq!(frames.iter().filter(|name| name.ends_with(".png")).count(), 100, "{frames:?}");
    assert!(frames.contains(&"film.tar".to_owned()), "{frames:?}");
    let job = farm.json(&["job", "show", "last"]);
    assert_eq!((&job["name"], &job["counts"]["succeeded"]), (&"Bounce 1-100".into(), &101.into()));
    assert_eq!(farm.json(&["job", "tasks", "last"])[41]["value"], "Frame=42");
}
