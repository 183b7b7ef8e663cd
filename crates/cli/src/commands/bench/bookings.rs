//! Bookings in a PostgreSQL database.

/// Measures bookings a second for each size of a batch. What `fsync` is set to is the database's.
pub async fn run(store: &str, bookings: u32, batches: &[u32]) -> anyhow::Result<()> {
    println!("durable bookings ({bookings} bookings, {})", windlass_store::shown_address(store));
    println!("  batch  bookings/s   by hand/s   ratio   statements/booking");
    for batch in batches {
        let rates = windlass_store::bench_bookings(store, bookings, *batch).await?;
        println!(
            "  {batch:>5} {:>11.0} {:>11.0} {:>7.2} {:>20.4}",
            rates.commit,
            rates.floor,
            rates.commit / rates.floor,
            rates.statements_per_task
        );
    }
    Ok(())
}
