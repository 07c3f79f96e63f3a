//! The controller of one cluster.

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    globalps_controller::controller().await
}
