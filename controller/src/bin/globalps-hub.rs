//! The hub of many clusters.

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    globalps_controller::hub().await
}
