//! A FIFO keyspace: events are written for ever, and the oldest go when all take more than 1 MiB.
//!
//! ```text
//! cargo run --release -p shamba --example event_log
//! ```

use shamba::{Db, Fifo, KeyspaceOptions};

const EVENTS: u64 = 60_000;
const BYTES_MAX: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-event-log-{}", std::process::id()));
    let newest = KeyspaceOptions::new().fifo(Fifo::bytes(BYTES_MAX));
    let db = Db::builder(&directory).write_buffer(128 << 10).keyspace("events", newest).open()?;
    let events = db.keyspace("events")?;
    for number in 0..EVENTS {
        // Numbers as keys, so that a scan returns the events in their order.
        events.put(number.to_be_bytes(), format!("event {number} of user {}", number * 7_919 % 10_007))?;
    }
    db.flush()?;
    db.wait_idle()?;
    let bytes: u64 = events.stats().levels.iter().map(|level| level.bytes).sum();
    let (first, last) = (events.first()?.ok_or("no event")?.0, events.last()?.ok_or("no event")?.0);
    let number = |key: &[u8]| key.try_into().map(u64::from_be_bytes);
    let (first, last) = (number(&first)?, number(&last)?);
    println!("events {first} to {last} are left, {bytes} bytes in {} runs", events.stats().runs);
    assert!(bytes <= BYTES_MAX && first > 0 && last == EVENTS - 1);
    assert_eq!(events.iter().count() as u64, EVENTS - first, "none is missing in between");
    drop(events);
    db.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
