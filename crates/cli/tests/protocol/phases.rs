//! What a worker does with the files of a task before its start and after its end, as a worker says it that the test plays.

use super::garbage::say;
use super::growth::{hello, started};
use super::place::Server;
use super::stream::open;
use windlass_api::wire::{Finished, Progress, Started, finished, report};
use windlass_api::{End, JobState, StepRequest, SubmitRequest, Task, TaskState};

/// The task once its worker said something of it, or nothing any more.
async fn told(server: &Server, id: &str, is_told: bool) -> Task {
    server
        .until("the status is as it was said", async |client| {
            client.task(id).await.unwrap().status.is_some() == is_told
        })
        .await;
    server.client.task(id).await.unwrap()
}

#[tokio::test]
async fn what_is_done_with_files_is_told_of_their_task_and_is_not_its_start() {
    let server = Server::start(&["--store", "memory"]);
    let step = StepRequest { command: vec!["true".to_owned()], ..StepRequest::default() };
    let request = SubmitRequest { steps: vec![step], ..SubmitRequest::default() };
    let job = server.client.submit(&request).await.unwrap().job;
    let mut end = open(&server.url).await;
    end.out.send(hello("w1", 1)).await.unwrap();
    let task = Some(started(&mut end).await);
    let does = |text: &str| {
        let status = Some(text.to_owned());
        say(vec![report::What::Progress(Progress { task, epoch: 1, percent: None, status })])
    };
    let id = format!("{job}.0");

    end.out.send(does("preparing: 1 of 2 MiB")).await.unwrap();
    let shown = told(&server, &id, true).await;
    assert_eq!((shown.state, shown.attempt.started_ms), (TaskState::Booked, None));
    let why = server.client.why(&id).await.unwrap().message;
    assert!(why.ends_with("; it says: preparing: 1 of 2 MiB"), "{why}");

    end.out.send(say(vec![report::What::Started(Started { task, epoch: 1, at: 1 })])).await.unwrap();
    assert_eq!(told(&server, &id, false).await.state, TaskState::Running);
    end.out.send(does("keeping its outputs")).await.unwrap();
    assert_eq!(told(&server, &id, true).await.status.as_deref(), Some("keeping its outputs"));

    let lost = Some(finished::End::OutputsLost("the quota is used up".to_owned()));
    let said = Finished { task, epoch: 1, end: lost, job_at_fault: true, ..Finished::default() };
    end.out.send(say(vec![report::What::Finished(said)])).await.unwrap();
    let ended = server.client.wait(job, None).await.unwrap();
    assert_eq!(ended.state, JobState::Failed, "{}", server.log());
    let shown = server.client.task(&id).await.unwrap();
    assert_eq!((shown.attempt.end, shown.attempt.exit_code), (Some(End::OutputsLost), None));
    let failure = shown.failure.expect("it failed");
    assert_eq!(failure.cause.as_str(), "outputs_lost");
    assert_eq!(failure.summary, "its outputs could not be kept: the quota is used up");
}
