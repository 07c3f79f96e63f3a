//! Runs a command on a single thread.

use std::future::Future;

use crate::error::{Failure, Result};

pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(
                format!("could not start: {error}"),
                "is this machine out of files or memory?",
            )
        })?;
    let done = runtime.block_on(work);
    // A name that is still being resolved would hold the end up, whatever the deadline.
    runtime.shutdown_background();
    done
}
