//! Answers that several callers ask for at about the same time and that are made once.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How old an answer may be that is given again. Boards ask as often as every second or two, and each of them would
/// otherwise cost a walk over the farm.
const AGE_MAX: Duration = Duration::from_secs(1);

/// An answer that is given again while it is young.
#[derive(Debug)]
pub struct RecentAnswer<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for RecentAnswer<T> {
    fn default() -> Self {
        RecentAnswer(Mutex::default())
    }
}

impl<T> RecentAnswer<T> {
    /// The answer, which `make` makes if there is none that is young enough. Those who ask meanwhile wait for it.
    ///
    /// # Errors
    ///
    /// That of `make`; the next caller tries again.
    pub async fn get<E>(&self, make: impl AsyncFnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut last = self.0.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(at, _)| at.elapsed() < AGE_MAX) {
            return Ok(answer.clone());
        }
        let answer = Arc::new(make().await?);
        *last = Some((Instant::now(), answer.clone()));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_just_made_is_given_again_and_an_error_is_not_kept() {
        let recent = RecentAnswer::default();
        assert_eq!(recent.get(async || Err::<u32, _>("no")).await, Err("no"));
        assert_eq!(recent.get(async || Ok::<_, ()>(1)).await, Ok(Arc::new(1)));
        assert_eq!(recent.get(async || Ok::<_, ()>(2)).await, Ok(Arc::new(1)));
        let old = Instant::now().checked_sub(AGE_MAX);
        let Some(old) = old else { return };
        *recent.0.lock().await = Some((old, Arc::new(1)));
        assert_eq!(recent.get(async || Ok::<_, ()>(3)).await, Ok(Arc::new(3)));
    }
}
