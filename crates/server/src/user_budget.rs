//! An amount that users share, such as bytes of bodies: each has a part of it at most, so that others find some left.

use crate::per_key::PerKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request may wait for its part of a budget.
const BUDGET_PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct UserBudget {
    all: Arc<Semaphore>,
    parts_of_user: usize,
    /// The amount of one part.
    part: usize,
    users: PerKey<String, Semaphore>,
}

/// A part of the budget, until it is dropped.
pub(crate) struct UserShare {
    _user: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl UserBudget {
    /// Of that amount, of which one user has `of_user` at most. It is given in parts of `part`.
    pub fn new(total: usize, of_user: usize, part: usize) -> UserBudget {
        UserBudget {
            all: Arc::new(Semaphore::new(total / part)),
            parts_of_user: of_user / part,
            part,
            users: PerKey::default(),
        }
    }

    /// Waits for that amount. `None` where it does not become free in time.
    pub async fn share(&self, user: &str, amount: usize) -> Option<UserShare> {
        let parts = u32::try_from(amount.div_ceil(self.part)).unwrap_or(u32::MAX);
        let own = self.users.of(user.to_owned(), || Semaphore::new(self.parts_of_user));
        let both = async {
            // The user's first: a request that waits for that must not hold what others could use.
            let user = own.acquire_many_owned(parts).await.ok()?;
            Some(UserShare { _user: user, _all: self.all.clone().acquire_many_owned(parts).await.ok()? })
        };
        tokio::time::timeout(BUDGET_PATIENCE, both).await.ok()?
    }

    /// Users who have a part, or wait for one.
    pub fn user_count(&self) -> usize {
        self.users.count()
    }
}
