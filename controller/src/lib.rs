//! The control-plane programs. The controller: cache -> plan -> write -> report. The hub: the same for many clusters. See
//! `docs/architecture.md`.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests are not shipped")
)]

mod cache;
mod hub;
mod leader;
mod objects;
mod process;
mod remote;
mod report;
mod run;
mod telemetry;
mod verification;

/// Runs the controller of one cluster until a signal.
pub async fn controller() -> anyhow::Result<()> {
    run::main().await
}

/// Runs the hub of many clusters until a signal.
pub async fn hub() -> anyhow::Result<()> {
    hub::main().await
}
