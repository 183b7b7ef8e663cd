//! The rows that bookings and releases lock and count in, in the order in which bookings lock them.

/// Frames of one transaction at most. Its locks on layers and jobs are held for as long as triggers count that many
/// frames: a tenth of a second, or two on a slow machine.
pub const BATCH_FRAMES_MAX: usize = 250;

/// An error by which no frame of a batch is booked.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum BookingError {
    #[error("a batch has {0} frames; at most {BATCH_FRAMES_MAX} are booked at a time")]
    TooMany(usize),
    /// PostgreSQL refused, or is not there. Nothing of the batch is booked, unless the commit was under way.
    #[error("the batch was not booked; PostgreSQL said no, and the next pass plans again")]
    Database(#[from] tokio_postgres::Error),
}

/// The jobs of frames, for their locks.
pub(super) const JOBS_OF_FRAMES: &str = "SELECT pk_job FROM frame WHERE pk_frame = ANY($1::text[])";
/// The schema's triggers count every frame in the row of its layer, and then in that of its job. Without these two a
/// batch would lock them in the order of its frames.
pub(super) const LAYER_COUNTS: &str =
    "SELECT pk_layer FROM layer_stat WHERE pk_layer = ANY($1::text[]) ORDER BY pk_layer FOR UPDATE";
pub(super) const JOB_COUNTS: &str =
    "SELECT pk_job FROM job_stat WHERE pk_job = ANY($1::text[]) ORDER BY pk_job FOR UPDATE";
pub(super) const SUBSCRIPTIONS: &str =
    "SELECT s.pk_show || '/' || s.pk_alloc, s.int_cores::bigint, s.int_burst, 0::bigint, -1::bigint
    FROM subscription s JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS w(show, alloc)
        ON s.pk_show = w.show AND s.pk_alloc = w.alloc
    ORDER BY s.pk_subscription FOR UPDATE OF s";
pub(super) const FOLDERS: &str =
    "SELECT pk_folder, int_cores::bigint, int_max_cores::bigint, int_gpus::bigint, int_max_gpus::bigint
    FROM folder_resource WHERE pk_folder = ANY($1::text[]) ORDER BY pk_folder FOR UPDATE";
pub(super) const JOBS: &str =
    "SELECT pk_job, int_cores, int_max_cores::bigint, int_gpus::bigint, int_max_gpus::bigint
    FROM job_resource WHERE pk_job = ANY($1::text[]) ORDER BY pk_job FOR UPDATE";
pub(super) const HOSTS: &str = "SELECT pk_host, int_cores_idle, int_mem_idle, int_gpus_idle, int_gpu_mem_idle
    FROM host WHERE pk_host = ANY($1::text[]) ORDER BY pk_host FOR UPDATE";
pub(super) const DEPARTMENTS: &str = "SELECT 1 FROM point WHERE (pk_show, pk_dept) IN (
        SELECT j.pk_show, j.pk_dept FROM frame f JOIN job j ON j.pk_job = f.pk_job WHERE f.pk_frame = ANY($1::text[]))
    ORDER BY pk_point FOR UPDATE";
/// The exit status by which OpenCue's own parts know a frame that was never launched. It costs no retry, and the
/// trigger drops its row of history.
pub(super) const NOT_LAUNCHED: i64 = 299;

pub(super) fn column<T, V>(rows: impl Iterator<Item = T>, value: impl Fn(T) -> V) -> Vec<V> {
    rows.map(value).collect()
}
