//! Reads of bodies. Those that are wanted are read together. After an error each is read by itself, so that one which the
//! store cannot give holds back no other.

use crate::bodies::{LoadedBody, ReadFault, SMALL_BYTES, StepId, WantedBodies};
use crate::unavailable::Unavailable;
use std::sync::Arc;
use std::time::Duration;
use windlass_store::StoreError;

/// Bytes of the bodies of some steps, in the order of the steps. A store may give only the first ones.
type Raw = Vec<Option<Arc<[u8]>>>;

/// The bodies that a read brought, and those that it did not.
#[derive(Default)]
pub struct BodyReads {
    pub bodies: Vec<(StepId, LoadedBody)>,
    /// Those that something waits for and that could not be read.
    pub unread: Vec<(StepId, ReadFault)>,
}

/// Reads what tasks run that are to be started. Before those that failed are tried again, `pause` passes.
pub async fn read_bodies<R>(
    wanted: WantedBodies,
    pause: Duration,
    read: impl Fn(Vec<StepId>) -> R,
) -> BodyReads
where
    R: Future<Output = Result<Raw, StoreError>>,
{
    let WantedBodies { steps: mut left, needed, failing } = wanted;
    let mut reads = BodyReads::default();
    if !failing.is_empty() {
        tokio::time::sleep(pause).await;
    }
    let mut alone = failing;
    // What is wanted ahead and is more than one read brings is wanted again when it is needed.
    while !left.is_empty() {
        match read(left.clone()).await {
            Ok(found) => {
                let steps: Vec<StepId> = left.drain(..found.len().min(left.len())).collect();
                for (step, raw) in steps.into_iter().zip(found) {
                    reads.bodies.push((step, parse(raw).await));
                }
                if reads.bodies.len() >= needed {
                    break;
                }
            }
            Err(error) => {
                tracing::error!("{}", Unavailable::from_store(&error));
                left.truncate(needed.saturating_sub(reads.bodies.len()));
                alone.append(&mut left);
            }
        }
    }
    read_alone(alone, read, &mut reads).await;
    reads
}

/// Reads each by itself. A store that does not even answer a read of nothing is not asked for the rest.
async fn read_alone<R>(steps: Vec<StepId>, read: impl Fn(Vec<StepId>) -> R, reads: &mut BodyReads)
where
    R: Future<Output = Result<Raw, StoreError>>,
{
    let mut answers = true;
    for step in steps {
        if answers {
            match read(vec![step]).await {
                Ok(found) => {
                    let raw = found.into_iter().next().flatten();
                    reads.bodies.push((step, parse(raw).await));
                    continue;
                }
                Err(error) => {
                    tracing::error!("what job {} runs: {}", step.0, Unavailable::from_store(&error));
                    answers = read(Vec::new()).await.is_ok();
                }
            }
        }
        let fault = if answers { ReadFault::Body } else { ReadFault::Store };
        reads.unread.push((step, fault));
    }
}

/// Parses a large body where nobody waits.
async fn parse(raw: Option<Arc<[u8]>>) -> LoadedBody {
    let Some(raw) = raw else { return LoadedBody::Gone };
    if raw.len() <= SMALL_BYTES {
        return LoadedBody::parse(&raw);
    }
    let parsed = tokio::task::spawn_blocking(move || LoadedBody::parse(&raw)).await;
    parsed.unwrap_or(LoadedBody::Unfit("what it runs cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use std::sync::Mutex;
    use windlass_core::JobId;

    const BODY: &[u8] = br#"{"command":["true"],"env":{},"cwd":"/","params":"none"}"#;

    /// A store that cannot give the bodies of some jobs, and what it was asked for.
    #[derive(Default)]
    struct FailingStore {
        damaged: Vec<u64>,
        is_away: bool,
        asked: Mutex<Vec<Vec<u64>>>,
    }

    impl FailingStore {
        fn read(&self, steps: Vec<StepId>) -> Result<Raw, StoreError> {
            let jobs: Vec<u64> = steps.iter().map(|(job, _)| job.0).collect();
            self.asked.lock().unwrap().push(jobs.clone());
            match self.is_away || jobs.iter().any(|job| self.damaged.contains(job)) {
                true => Err(StoreError::Database { doing: "read", source: "a damaged page".into() }),
                false => Ok(jobs.iter().map(|_| Some(Arc::from(BODY))).collect()),
            }
        }

        /// The jobs whose bodies were read, and those whose bodies were not.
        async fn give(&self, wanted: WantedBodies) -> (Vec<u64>, Vec<(u64, ReadFault)>) {
            let reads = read_bodies(wanted, Duration::ZERO, |steps| ready(self.read(steps))).await;
            assert!(reads.bodies.iter().all(|(_, body)| matches!(body, LoadedBody::Body(..))));
            let read = reads.bodies.into_iter().map(|((job, _), _)| job.0).collect();
            (read, reads.unread.into_iter().map(|((job, _), fault)| (job.0, fault)).collect())
        }
    }

    fn steps(jobs: &[u64]) -> Vec<StepId> {
        jobs.iter().map(|job| (JobId(*job), 0)).collect()
    }

    fn wanted(jobs: &[u64], needed: usize) -> WantedBodies {
        WantedBodies { steps: steps(jobs), needed, failing: Vec::new() }
    }

    #[tokio::test]
    async fn a_body_that_cannot_be_read_holds_back_no_other() {
        let store = FailingStore { damaged: vec![2], ..FailingStore::default() };
        let (read, unread) = store.give(wanted(&[1, 2, 3, 4], 3)).await;
        assert_eq!(
            (read, unread),
            (vec![1, 3], vec![(2, ReadFault::Body)]),
            "4 is wanted again when it is needed"
        );
        store.asked.lock().unwrap().clear();
        let again = WantedBodies { failing: steps(&[2]), ..wanted(&[5, 6], 1) };
        let (read, unread) = store.give(again).await;
        assert_eq!((read, unread), (vec![5, 6], vec![(2, ReadFault::Body)]));
        let asked: [Vec<u64>; 3] = [vec![5, 6], vec![2], vec![]];
        assert_eq!(*store.asked.lock().unwrap(), asked, "it is not among the others again");
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_not_asked_for_each() {
        let store = FailingStore { is_away: true, ..FailingStore::default() };
        let (read, unread) = store.give(wanted(&[1, 2, 3], 3)).await;
        assert!(read.is_empty());
        assert_eq!(unread, [1, 2, 3].map(|job| (job, ReadFault::Store)));
        assert_eq!(store.asked.lock().unwrap().len(), 3, "all, one, and none");
    }
}
