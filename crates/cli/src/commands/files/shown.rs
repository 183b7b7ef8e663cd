//! The files of a job, as `windlass job show` tells them.

use crate::ui::fields::FieldLines;
use crate::ui::output::count;
use crate::ui::transfer::FileAmount;
use windlass_api::client::Client;
use windlass_api::client::files::job_files;
use windlass_api::{JobFiles, StepFilesOf};
use windlass_core::resources::Bytes;

/// The files of a job, with the outputs of its first tasks. `None` if its steps have none, or if the server does not say:
/// one of an earlier release, or to a user who may not read outputs.
pub async fn files_of(client: &Client, job: u64) -> Option<JobFiles> {
    let files = job_files(client, job, 0).await.ok()?;
    (!files.steps.is_empty()).then_some(files)
}

/// The same in lines of a name and a value.
pub fn files_text(job: u64, files: &JobFiles) -> String {
    let mut fields = FieldLines::for_stdout();
    for of in &files.steps {
        let found = inputs(of);
        if !found.is_empty() {
            fields.add("inputs", &format!("{}: {}", of.step, found.join(", ")));
        }
        if !of.files.outputs.is_empty() {
            fields.add("outputs", &format!("{}: {}", of.step, of.files.outputs.join(", ")));
        }
    }
    if !files.outputs.is_empty() {
        let mut all = FileAmount::default();
        files.outputs.iter().for_each(|of| all.add(FileAmount { files: of.files, bytes: of.bytes }));
        let tasks = count(files.outputs.len() as u64, "task");
        let first = if files.next.is_some() { "the first " } else { "" };
        fields.add("kept", &format!("{all} of {first}{tasks}; 'windlass job fetch {job}' gets them"));
    }
    fields.text()
}

/// What the tasks of a step find.
fn inputs(of: &StepFilesOf) -> Vec<String> {
    let mut found = Vec::new();
    if of.files.root.is_some() {
        found.push(match (of.input_files, of.input_bytes) {
            (Some(files), Some(bytes)) => FileAmount { files, bytes }.to_string(),
            _ => "files that the server does not have any more".to_owned(),
        });
    }
    found.extend(of.files.outputs_of.iter().map(|step| format!("outputs of {step}")));
    found.extend(of.files.stdin.as_deref().map(|digest| {
        let bytes = digest.rsplit_once('/').and_then(|(_, bytes)| bytes.parse().ok());
        let of = bytes.map_or_else(String::new, |bytes| format!(" of {}", Bytes(bytes)));
        format!("a standard input{of}")
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::{StepFiles, TaskOutputs};

    #[test]
    fn inputs_and_outputs_are_told_by_step() {
        let digest = |bytes: u64| Some(format!("{}/{bytes}", "0".repeat(64)));
        let step = |name: &str, files: StepFiles| StepFilesOf {
            step: name.to_owned(),
            files,
            ..StepFilesOf::default()
        };
        let compile = StepFiles { root: digest(90), outputs: vec!["*.o".to_owned()], ..StepFiles::default() };
        let link =
            StepFiles { outputs_of: vec!["compile".to_owned()], stdin: digest(2048), ..StepFiles::default() };
        let mut steps = vec![step("compile", compile.clone()), step("link", link), step("gone", compile)];
        steps[0].input_files = Some(120);
        steps[0].input_bytes = Some(4 << 20);
        let outputs = |index| TaskOutputs { index, files: 2, bytes: 1 << 20, ..TaskOutputs::default() };
        let files = JobFiles { steps, outputs: vec![outputs(0), outputs(3)], next: None };
        assert_eq!(
            files_text(12, &files),
            "inputs     compile: 120 files, 4 MiB\n\
             outputs    compile: *.o\n\
             inputs     link: outputs of compile, a standard input of 2 KiB\n\
             inputs     gone: files that the server does not have any more\n\
             outputs    gone: *.o\n\
             kept       4 files, 2 MiB of 2 tasks; 'windlass job fetch 12' gets them\n"
        );
    }
}
