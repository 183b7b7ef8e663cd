//! What the program says to a person who types something slightly wrong, and the words in which it speaks.

use crate::support::Farm;

#[test]
fn cancelled_is_spelt_in_one_way_for_people_and_in_one_for_programs() {
    let farm = Farm::with_server(&["--no-worker"]);
    for _ in 0..2 {
        farm.fails(6, &["submit", "--each", "a", "b", "--", "true"]);
    }
    let told = farm.run(&["job", "cancel", "1"]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("job 1 is cancelled"), "{told}");
    for args in [&["jobs"][..], &["job", "tasks", "1"], &["job", "show", "1"], &["why", "1.0"]] {
        let text = farm.ok(args);
        assert!(text.contains("cancelled") && !text.contains("canceled"), "{args:?}: {text}");
    }
    assert!(!farm.ok(&["job", "show", "1"]).contains("stopped"), "the state says it");
    assert_eq!(farm.json(&["jobs"])[1]["state"], "canceled");
    assert_eq!(farm.json(&["job", "tasks", "1"])[0]["state"], "canceled");
    for word in ["canceled", "cancelled", "failed,cancelled"] {
        assert_eq!(farm.ok(&["jobs", "--state", word, "-o", "name"]), "1\n", "{word}");
    }
    assert_eq!(farm.ok(&["job", "tasks", "1", "--state", "cancelled", "-o", "name"]), "1.0\n1.1\n");
    let help = farm.ok(&["jobs", "--help"]);
    assert!(help.contains("cancelled") && !help.contains("canceled"), "{help}");
}
