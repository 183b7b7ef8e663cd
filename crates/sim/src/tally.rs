//! Counts of what happened in a run.

crate::faults::numbers! {
    /// Number of events of each kind.
    Tally: u64 {
        /// Entries of the list that were carried out.
        steps,
        /// Processes that machines started.
        starts,
        /// Batches that the store applied.
        commits,
        /// Batches that the store did not apply.
        failed_commits,
        /// Batches that it applied, and said that it had not.
        unknown_commits,
        /// Starts that waited for a body.
        bodies_read,
        /// Machines that never came back.
        retired,
        /// Pages of parked jobs that were read.
        pages,
        /// Reads of the store that failed.
        failed_reads,
        /// Schedulers that were killed.
        scheduler_deaths,
        /// Keepers that were killed.
        keeper_deaths,
        /// Links that were cut.
        cut_links,
        /// Messages that were lost.
        lost_messages,
        /// Bookings that another scheduler made first.
        refused_writes,
        /// Steps of the scheduler's clock.
        clock_steps,
        /// Hellos that were refused because another machine has the name.
        refused_names,
        /// Workers whose lease ran out.
        expiries,
        /// Attempts that a keeper ended because its lease ran out.
        fencings,
        /// Workers that were forgotten.
        forgotten,
        /// Jobs that were deleted for their age.
        deleted,
        /// Ends that a lying machine reported.
        lies,
        /// Clients that hung up while their request for a place waited.
        hang_ups,
        /// Results that a machine lost.
        lost_results,
        /// Bookings of other schedulers that became durable after the epoch of their worker had ended.
        late_bookings,
    }
}

impl Tally {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Tally) {
        *self = self.zip(other, |own, more| own + more);
    }
}
