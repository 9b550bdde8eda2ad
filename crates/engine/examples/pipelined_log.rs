//! An append-only log in an async program: entries are appended one after another, and one sync
//! makes many of them durable.
//!
//! The appender commits without waiting for the device and passes each ticket on. A task answers
//! the clients when their entries are durable; another thread syncs whenever there is something to
//! sync. So the number of syncs follows the speed of the device, not the number of entries. A
//! replicated log (Raft) needs the same: append, send to the followers, and acknowledge what is
//! durable.
//!
//! ```text
//! cargo run --release -p shamba --example pipelined_log
//! ```

use std::error::Error;

use shamba::{Db, Ticket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

const ENTRIES: u64 = 1_000;

/// Completes when the write is durable.
async fn durable(ticket: Ticket) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (done, wait) = oneshot::channel();
    ticket.on_durable(move |outcome| drop(done.send(outcome)));
    Ok(wait.await??)
}

fn append(db: &Db, entry: u64) -> shamba::Result<Ticket> {
    let mut batch = db.batch();
    batch.put(entry.to_be_bytes(), format!("entry {entry}"));
    batch.commit_ticket()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let directory = std::env::temp_dir().join(format!("shamba-log-{}", std::process::id()));
    let db = Db::open(&directory)?;
    let syncs_before = db.stats().wal_syncs;
    let (newest, mut to_sync) = mpsc::unbounded_channel::<Ticket>();
    let syncer = spawn_blocking(move || {
        while let Some(mut ticket) = to_sync.blocking_recv() {
            // The newest ticket stands for all before it.
            while let Ok(newer) = to_sync.try_recv() {
                ticket = newer;
            }
            ticket.wait()?;
        }
        shamba::Result::Ok(())
    });
    let mut clients = Vec::new();
    for entry in 0..ENTRIES {
        let ticket = append(&db, entry)?;
        newest.send(ticket.clone())?;
        clients.push(tokio::spawn(durable(ticket)));
    }
    for client in clients {
        client.await??;
    }
    drop(newest);
    syncer.await??;
    let syncs = db.stats().wal_syncs - syncs_before;
    println!("{ENTRIES} entries are durable after {syncs} syncs");
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
